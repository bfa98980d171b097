"""`smoke`: a recipe's topology, shrunk, trained for a few steps and judged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from dsforge.base.canonical import dumps
from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.launch.types import OnEvent, RunOutcome
from dsforge.ops.shrink import Change, Shrunk, shrink
from dsforge.ops.start import StartOptions, start
from dsforge.plan.resolve import make_plan
from dsforge.plan.types import Plan, Program
from dsforge.recipe.document import Document
from dsforge.recipe.load import LoadedRecipe, check
from dsforge.records.checkpoint import step_folder_name, whole_checkpoints
from dsforge.records.run_dir import RunDir
from dsforge.runs.reading import read_reports

MARGIN = 0.3
"""The mean loss of the last five steps must lie this far below that of the first five (nats a token)."""
_WINDOW = 5
RELOAD_TOLERANCE = 1e-6
"""Largest loss difference between the steps after a reload and the same steps before it, fp32 or bf16:
the arithmetic is the same, so on a CPU the difference is exactly 0."""


@dataclass(frozen=True, slots=True)
class Check:
    """One criterion and what was seen."""

    name: str
    passed: bool
    seen: str
    run_dir: Path | None = None
    """The run that it was seen in, where that is not the first."""


@dataclass(frozen=True, slots=True)
class SmokeResult:
    """What a smoke run showed."""

    passed: bool
    checks: tuple[Check, ...]
    changes: tuple[Change, ...]
    layout: dict[str, int]
    not_exercised: tuple[str, ...]
    """Kinds of parallelism that the recipe has and these ranks did not: TP, PP, CP, DP, EP or VP."""
    losses: tuple[float, ...]
    validation_losses: dict[int, float]
    run_dir: Path
    exit_code: int

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        return {
            "passed": self.passed,
            "checks": [{"name": c.name, "passed": c.passed, "seen": c.seen} for c in self.checks],
            "shrunk": [change.as_dict() for change in self.changes],
            "layout": self.layout,
            "not_exercised": list(self.not_exercised),
            "losses": list(self.losses),
            "validation_losses": {str(step): loss for step, loss in self.validation_losses.items()},
            "run": str(self.run_dir),
        }


def shrunk_recipe(loaded: LoadedRecipe, shrunk: Shrunk) -> LoadedRecipe:
    """Return shrunk data as a loaded recipe of its own; it is checked like any other."""
    document = Document(data=shrunk.data)
    return LoadedRecipe(check(document), loaded.path, dumps(shrunk.data), document)


def with_changes(loaded: LoadedRecipe, section: str, **values: Any) -> LoadedRecipe:
    """Return a recipe with some keys of one section set."""
    data = {**loaded.document.data, section: {**loaded.document.data.get(section, {}), **values}}
    document = Document(data=data)
    return replace(loaded, recipe=check(document), text=dumps(data), document=document)


def smoke(
    loaded: LoadedRecipe,
    options: StartOptions,
    on_event: OnEvent,
    on_shrunk: Callable[[Shrunk], None],
    *,
    max_ranks: int,
    steps: int,
) -> SmokeResult:
    """Shrink, train, reload, judge; DsforgeError when the recipe itself is refused.

    `on_shrunk` is told what was shrunk, and to how many ranks, before anything starts.
    """
    original = make_plan(loaded)
    refuse_script(original, "smoke")
    small = shrink(loaded.recipe, original, max_ranks, steps=steps)
    on_shrunk(small)
    half_way = steps - _WINDOW
    first = with_changes(shrunk_recipe(loaded, small), "checkpoint", every_steps=half_way, keep=0)
    plan, outcome = start(first, options, on_event)
    checks = [_ended_well(outcome)]
    if checks[0].passed:
        checks += [_world(plan, outcome), *_learning(outcome, steps)]
        if plan.train.eval_every:
            checks.append(_validation(plan, outcome))
        if plan.external is None:
            checks.append(_reloads(first, outcome, half_way, options, on_event))
        else:
            checks.append(_saves(plan.external, outcome))
    failed = [one for one in checks if not one.passed]
    passed = not failed
    layout = plan.layout
    return SmokeResult(
        passed=passed,
        checks=tuple(checks),
        changes=small.changes,
        layout={"tp": layout.tp, "pp": layout.pp, "dp": layout.dp, "cp": layout.cp, "zero": layout.zero},
        not_exercised=small.lost,
        losses=tuple(outcome.losses.values()),
        validation_losses=outcome.validation_losses,
        run_dir=next((one.run_dir for one in failed if one.run_dir), outcome.run_dir),
        exit_code=0 if passed else outcome.exit.code or 1,
    )


def _ended_well(outcome: RunOutcome) -> Check:
    seen = f"{outcome.exit.message.splitlines()[0]} (exit {outcome.exit.code})"
    return Check("every rank ended well", outcome.exit.code == 0, seen)


def _world(plan: Plan, outcome: RunOutcome) -> Check:
    reports = read_reports(RunDir(outcome.run_dir).attempt(outcome.attempts))
    ranks = [report.rank for report in reports]
    expected = list(range(plan.layout.world_size))
    return Check(
        "the world is the planned one", ranks == expected, f"{len(ranks)} of {len(expected)} ranks reported"
    )


def _learning(outcome: RunOutcome, steps: int) -> Sequence[Check]:
    losses = list(outcome.losses.values())
    finite = len(losses) == steps and all(math.isfinite(loss) for loss in losses)
    first, last = fmean(losses[:_WINDOW]), fmean(losses[-_WINDOW:])
    return (
        Check("every loss is finite", finite, f"{len(losses)} of {steps} steps"),
        Check(f"the loss falls by {MARGIN}", first - last >= MARGIN, f"{first:.4f} to {last:.4f}"),
    )


def _validation(plan: Plan, outcome: RunOutcome) -> Check:
    losses = outcome.validation_losses
    last, every = plan.train.steps, plan.train.eval_every
    due = sorted({*range(every, last + 1, every), last})
    passed = sorted(losses) == due and all(map(math.isfinite, losses.values()))
    seen = ", ".join(f"{loss:.4f} after step {step}" for step, loss in losses.items()) or "none"
    return Check(f"validation after every {every} steps is finite", passed, seen)


def _saves(program: Program, outcome: RunOutcome) -> Check:
    """Look for what an external program writes beside its checkpoints; only it can read them."""
    root, marks = outcome.run_dir / "checkpoints", flavour_of(program.flavour).checkpoint_marks
    written = [mark for mark in marks if (root / mark).is_file()]
    return Check("a checkpoint is written", bool(written), f"{root} has {' and '.join(written) or 'none'}")


def refuse_script(plan: Plan, what: str) -> None:
    """Raise DsforgeError DSF072 for a program of which only its author knows what a smaller one is."""
    if plan.external is not None and flavour_of(plan.external.flavour).takes == "anything":
        raise DsforgeError(
            "DSF072",
            f"{what} cannot shrink a script: its size is in its own code",
            hint="launch it on a CPU: `dsforge launch RECIPE cluster.gpu=cpu`",
            exit_code=ExitCode.FINDINGS,
        )


def _reloads(
    recipe: LoadedRecipe, outcome: RunOutcome, step: int, options: StartOptions, on_event: OnEvent
) -> Check:
    name = "a checkpoint is written and reloaded"
    root = outcome.run_dir / "checkpoints"
    folder = root / step_folder_name(step)
    if folder not in [path for _, path in whole_checkpoints(root)]:
        return Check(name, passed=False, seen=f"{folder} is not whole")
    again = with_changes(recipe, "checkpoint", resume=str(folder), every_steps=0)
    try:
        _, resumed = start(again, options, on_event)
    except DsforgeError as error:
        return Check(name, passed=False, seen=error.message)
    if resumed.exit.code != 0:
        return Check(name, passed=False, seen=resumed.exit.message.splitlines()[0], run_dir=resumed.run_dir)
    difference = max(
        (abs(loss - outcome.losses.get(at, float("inf"))) for at, loss in resumed.losses.items()),
        default=float("inf"),
    )
    same_steps = sorted(resumed.losses) == [at for at in sorted(outcome.losses) if at > step]
    seen = f"steps {step + 1} to {step + _WINDOW} again, largest loss difference {difference:.1e}"
    return Check(name, same_steps and difference <= RELOAD_TOLERANCE, seen, resumed.run_dir)
