"""Looks at checkpoints before any rank starts: where they go, and the one that the run would go on from.

The trainer looks again, at more and at every byte; this finds in a second what it would find after minutes.
"""

from __future__ import annotations

from pathlib import Path

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.base.files import why_unwritable
from dsforge.catalog.engines.capabilities import capabilities
from dsforge.launch.types import LaunchRequest
from dsforge.layout.shape import padded_vocab
from dsforge.plan.types import Plan
from dsforge.records.checkpoint import MANIFEST_NAME, CheckpointManifest, read_manifest, whole_checkpoints
from dsforge.train.fits import ORDER_KEYS, differs, layout_difference, model_difference, order_facts


def check_checkpoints(request: LaunchRequest) -> None:
    """Raise DsforgeError when checkpoints cannot be written, or the one to resume from cannot be used."""
    plan = request.plan
    folder = request.recipe_root / plan.checkpoint.dir if plan.checkpoint.dir is not None else None
    if folder is not None:
        check_writable(folder)
    chosen = _chosen(request, folder)
    if chosen is None:
        return
    manifest = read_manifest(chosen)
    if not isinstance(manifest, CheckpointManifest):
        raise _unusable("the checkpoint to resume from is not whole", chosen)
    difference = difference_from_plan(manifest, plan)
    if difference is not None:
        raise DsforgeError(
            "DSF213",
            f"the checkpoint of step {manifest.step} does not fit the plan: {difference}",
            Place(file=str(chosen)),
            "go on as it was saved, name another checkpoint.dir, or set checkpoint.resume=never",
            ExitCode.FINDINGS,
        )


def newest_difference(folder: Path, plan: Plan) -> str | None:
    """Return how the newest whole checkpoint of a folder differs from a plan; None where nothing does."""
    try:
        whole = whole_checkpoints(folder)
    except OSError as error:
        return f"its checkpoints cannot be looked through: {error.strerror}"
    manifest = read_manifest(whole[-1][1]) if whole else None
    if not isinstance(manifest, CheckpointManifest):
        return None
    difference = difference_from_plan(manifest, plan)
    return f"of the checkpoint of step {manifest.step} {difference}" if difference is not None else None


def difference_from_plan(manifest: CheckpointManifest, plan: Plan) -> str | None:
    """Return how a checkpoint differs from a plan that would go on from it, or None."""
    if manifest.trainer != plan.trainer:
        return differs("trainer", manifest.trainer, plan.trainer)
    if (difference := layout_difference(manifest, plan)) is not None:
        return f"{difference}{_padding(manifest, plan)}"
    if manifest.consumed_samples != manifest.step * plan.batch.global_size:
        samples = f"{manifest.consumed_samples} samples in {manifest.step} steps"
        return f"it has seen {samples}, batch.global is {plan.batch.global_size}"
    for name, value in order_facts(plan).items():
        if name in manifest.data and manifest.data[name] != value:
            return differs(ORDER_KEYS[name], manifest.data[name], value)
    return model_difference(manifest, plan)


def _padding(manifest: CheckpointManifest, plan: Plan) -> str:
    """Return in words how the embedding's rows differ, which depend on TP."""
    was = padded_vocab(
        plan.model.vocab, manifest.layout.get("tp", 1), capabilities(plan.trainer).vocab_divisor
    )
    now = plan.model.padded_vocab
    return "" if was == now else f"; the vocabulary was padded to {was} rows, now to {now}"


def _chosen(request: LaunchRequest, folder: Path | None) -> Path | None:
    resume = request.plan.checkpoint.resume
    if resume == "never" or (resume == "auto" and folder is None):
        return None
    if resume == "auto":
        assert folder is not None
        return _newest(folder)
    named = request.recipe_root / resume
    if (named / MANIFEST_NAME).exists():
        return named
    newest = _newest(named)
    if newest is None:
        raise _unusable("checkpoint.resume names a place without a whole checkpoint", named)
    return newest


def _newest(root: Path) -> Path | None:
    try:
        whole = whole_checkpoints(root)
    except OSError as error:
        raise _unusable(f"checkpoints cannot be looked through: {error.strerror}", root) from error
    return whole[-1][1] if whole else None


def _unusable(message: str, place: Path) -> DsforgeError:
    return DsforgeError(
        "DSF212",
        message,
        Place(file=str(place)),
        "name a step folder or a folder of them, or set checkpoint.resume to auto or never",
        exit_code=ExitCode.ENVIRONMENT,
    )


def check_writable(folder: Path) -> None:
    """Raise DsforgeError DSF210 when nothing can be saved in a folder."""
    if (why := why_unwritable(folder)) is not None:
        raise DsforgeError(
            "DSF210",
            f"checkpoints cannot be saved: {why}",
            Place(file=str(folder)),
            "name another checkpoint.dir, or mend that place",
            exit_code=ExitCode.ENVIRONMENT,
        )
