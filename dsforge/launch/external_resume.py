"""Looks at an external program's checkpoints before any rank starts, and notes how they are saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.external.vocabulary import OPTION, divisor_that_keeps, passed_divisor
from dsforge.launch.checkpoints import check_writable
from dsforge.launch.types import LaunchRequest
from dsforge.plan.types import Plan
from dsforge.records.saved import Saved, read_saved, write_saved


def check_resume(request: LaunchRequest, marks: Sequence[str]) -> None:
    """Raise DsforgeError when an external program cannot save, or the checkpoint it is to load is not there.

    `marks`: files of which a folder of the program's checkpoints has one.
    """
    plan = request.plan
    if plan.checkpoint.dir is not None:
        check_writable(request.recipe_root / plan.checkpoint.dir)
    if plan.checkpoint.resume == "never":
        return
    if plan.checkpoint.resume == "auto":
        if plan.checkpoint.dir is not None:
            _check_rows(request.recipe_root / plan.checkpoint.dir, plan, marks)
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
    _check_rows(named, plan, marks)


def note_layout(request: LaunchRequest) -> None:
    """Write beside the checkpoints of an external program under which layout they are saved; OSError."""
    plan = request.plan
    if plan.external is None or plan.checkpoint.dir is None or not flavour_of(plan.external.flavour).marks:
        return
    flavour, model, tp = plan.external.flavour, plan.model, plan.layout.tp
    divisor = passed_divisor(flavour, [word.text for word in plan.external.arguments])
    saved = Saved(flavour, tp, model.vocab, divisor or model.padded_vocab // tp, model.padded_vocab)
    folder = request.recipe_root / plan.checkpoint.dir
    folder.mkdir(parents=True, exist_ok=True)
    write_saved(folder, saved)


def _check_rows(folder: Path, plan: Plan, marks: Sequence[str]) -> None:
    """Raise DsforgeError DSF213 when the embedding of the checkpoints has another number of rows."""
    saved, now = read_saved(folder), plan.model.padded_vocab
    if saved is None or saved.vocab != plan.model.vocab or saved.padded_vocab == now:
        return
    if not any((folder / mark).is_file() for mark in marks):
        return
    tp = plan.layout.tp
    raise DsforgeError(
        "DSF213",
        f"the checkpoint does not fit the plan: under TP {saved.tp} its vocabulary was padded to "
        f"{saved.padded_vocab} rows, under TP {tp} the plan pads it to {now}",
        Place(file=str(folder)),
        _way_on(saved, plan),
        ExitCode.FINDINGS,
    )


def _way_on(saved: Saved, plan: Plan) -> str:
    assert plan.external is not None
    again = f"go on under TP {saved.tp}, or begin anew with another checkpoint.dir"
    if flavour_of(plan.external.flavour).takes != "options":
        return again
    step = saved.divisor * saved.tp
    divisor = divisor_that_keeps(saved.padded_vocab, saved.vocab, plan.layout.tp, step)
    keeps = f"pass on `{OPTION} {divisor}`, which keeps {saved.padded_vocab} rows, or "
    return again if divisor is None else keeps + again
