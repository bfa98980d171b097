"""Looks at checkpoints before any rank starts: where they go, and the one that the run would go on from.

The trainer looks again, at more and at every byte; this finds in a second what it would find after minutes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.launch.types import LaunchRequest
from dsforge.plan.types import Plan
from dsforge.records.checkpoint import MANIFEST_NAME, CheckpointManifest, read_manifest, whole_checkpoints
from dsforge.train.fits import layout_facts, order_facts
from dsforge.train.parameters import model_parameters


def check_checkpoints(request: LaunchRequest) -> None:
    """Raise DsforgeError when checkpoints cannot be written, or the one to resume from cannot be used."""
    plan = request.plan
    folder = request.recipe_root / plan.checkpoint.dir if plan.checkpoint.dir is not None else None
    if folder is not None:
        _check_writable(folder)
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


def check_resume(request: LaunchRequest, marks: Sequence[str]) -> None:
    """Raise DsforgeError when an external program cannot save, or the checkpoint it is to load is not there.

    `marks`: files of which a folder of the program's checkpoints has one.
    """
    plan = request.plan
    if plan.checkpoint.dir is not None:
        _check_writable(request.recipe_root / plan.checkpoint.dir)
    if plan.checkpoint.resume in ("auto", "never"):
        return
    named = request.recipe_root / plan.checkpoint.resume
    if not named.exists() or (marks and not any((named / mark).is_file() for mark in marks)):
        raise DsforgeError(
            "DSF212",
            "checkpoint.resume names a place without a checkpoint of the program",
            Place(file=str(named)),
            f"a folder that has {' or '.join(marks) or 'one'}, or checkpoint.resume: auto or never",
            exit_code=ExitCode.ENVIRONMENT,
        )


def difference_from_plan(manifest: CheckpointManifest, plan: Plan) -> str | None:
    """Return how a checkpoint differs from a plan that would go on from it, or None."""
    if manifest.trainer != plan.trainer:
        return f"trainer was {manifest.trainer}, the plan says {plan.trainer}"
    saved = manifest.layout
    for name, planned in layout_facts(plan).items():
        if name in saved and saved[name] != planned:
            return f"{name} was {saved[name]}, the plan says {planned}"
    if manifest.consumed_samples != manifest.step * plan.batch.global_size:
        samples = f"{manifest.consumed_samples} samples in {manifest.step} steps"
        return f"it has seen {samples}, the plan's global batch is {plan.batch.global_size}"
    for name, value in order_facts(plan).items():
        if name in manifest.data and manifest.data[name] != value:
            return f"{name} was {manifest.data[name]}, the plan says {value}"
    shapes = {entry.name: tuple(entry.shape) for entry in manifest.parameters}
    for spec in model_parameters(plan.model):
        if shapes.get(spec.name) != tuple(spec.shape):
            return f"{spec.name} was {shapes.get(spec.name, 'not there')}, the plan says {spec.shape}"
    return None


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


def _check_writable(folder: Path) -> None:
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        reason = "is not a folder" if not there.is_dir() else "cannot be written to"
        raise DsforgeError(
            "DSF210",
            f"checkpoints cannot be saved: {there} {reason}",
            Place(file=str(folder)),
            "name another checkpoint.dir, or mend that place",
            exit_code=ExitCode.ENVIRONMENT,
        )
