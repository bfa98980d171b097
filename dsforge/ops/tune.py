"""`tune`: a recipe's best layouts, each trained for a few steps, and how far predictions are off."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from dsforge.base.canonical import sha256_value
from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode, ExitKind
from dsforge.base.files import write_atomically
from dsforge.catalog.tables import find_hardware
from dsforge.launch.types import RunOutcome
from dsforge.ops.time_box import TimeBox
from dsforge.ops.tune_files import ANOTHER, check_own
from dsforge.ops.tune_layouts import Layouts, layouts_to_try, short_run
from dsforge.plan.estimate import estimate
from dsforge.plan.measurements import calibration_in, work_sha256
from dsforge.plan.memory import memory_estimate
from dsforge.plan.resolve import make_plan
from dsforge.plan.types import Plan
from dsforge.recipe.load import LoadedRecipe
from dsforge.recipe.measured_file import read_measured
from dsforge.recipe.resolved import resolved_data
from dsforge.records.calibration import KIND, Calibration, Measurement, Setting, Trial
from dsforge.records.run_dir import RunDir
from dsforge.records.streams import MetricsLine
from dsforge.runs.reading import read_metrics

Run = Callable[[LoadedRecipe], RunOutcome]
"""Launches a recipe and supervises it to its end; DsforgeError before anything starts."""
WARM_UP_STEPS = 2
FEWEST_STEPS = 3
"""Steps after the warm-up that a median is taken of, at least."""
_STOPPED = (ExitKind.INTERRUPTED.value, ExitKind.TERMINATED.value)


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was tried of the layouts, in their order, and whether somebody asked for the end meanwhile."""

    layouts: Layouts
    calibration: Calibration
    stopped: int | None
    """Exit code of who stopped it, None where nobody did."""

    @property
    def trials(self) -> list[Trial]:
        """Trials of the layouts, the best first: by measured seconds, then those that failed."""
        made = [one for values in self.layouts.values if (one := self.calibration.trial(values))]
        return sorted(made, key=lambda one: one.measured.step_seconds if one.measured else float("inf"))

    @property
    def best(self) -> Trial | None:
        """The fastest of them, None where none was measured."""
        return next((one for one in self.trials if one.measured), None)

    @property
    def left(self) -> list[dict[str, Any]]:
        """Layouts that were not tried yet."""
        return [values for values in self.layouts.values if self.calibration.trial(values) is None]

    @property
    def exit_code(self) -> int:
        """0 where something is measured, however little; 4 where nothing is; a signal's where one came."""
        if self.stopped is not None:
            return self.stopped
        return int(ExitCode.OK if self.best is not None else ExitCode.BEFORE_FIRST_STEP)


def recipe_sha256(loaded: LoadedRecipe) -> str:
    """Return what a calibration knows its recipe by, whatever it is called."""
    return sha256_value({**resolved_data(loaded.recipe), "name": "", "profiles": {}})


def tune(
    loaded: LoadedRecipe,
    run: Run,
    on_layout: Callable[[int, int, dict[str, Any]], None],
    *,
    path: Path,
    top: int,
    steps: int,
    minutes: float,
    fresh: bool = False,
    retry: bool = False,
) -> Tuned:
    """Try the layouts that the file at `path` does not have yet, each noted there before the next one.

    `run` launches one; `on_layout` is told its number, how many there are, and its values. One that fails is
    noted with its cause, and tried again with `retry` alone. DsforgeError DSF799 where the file is of
    something else, with `fresh` where it is none of tune's, DSF796 or DSF798 where it is broken; whatever
    keeps every run from starting here.
    """
    layouts = layouts_to_try(loaded, top)
    calibration = _begun(loaded, path, steps, fresh=fresh)
    if retry:
        calibration = replace(calibration, trials=tuple(one for one in calibration.trials if one.measured))
    stopped = None
    with TimeBox(60 * minutes) as box:
        for number, values in enumerate(layouts.values, start=1):
            if calibration.trial(values) is not None:
                continue
            if box.is_over:
                break
            on_layout(number, len(layouts.values), values)
            try:
                trial, stopped = _try(loaded, values, steps, run, box)
            except KeyboardInterrupt:
                trial, stopped = None, int(ExitCode.INTERRUPTED)
            if trial is not None:
                calibration = replace(calibration, trials=(*calibration.trials, trial))
                write_atomically(path, calibration.to_json())
            if stopped is not None:
                break
    return Tuned(layouts, calibration, stopped)


def _begun(loaded: LoadedRecipe, path: Path, steps: int, *, fresh: bool) -> Calibration:
    cluster = loaded.recipe.cluster
    setting = Setting(
        recipe_sha256=recipe_sha256(loaded),
        trainer=loaded.recipe.trainer,
        gpu=find_hardware(cluster.gpu).name,
        gpus=cluster.nodes * cluster.gpus_per_node,
        host=socket.gethostname() if cluster.nodes == 1 else "",
        steps=steps,
    )
    if fresh:
        check_own(path, KIND)
    if fresh or not path.exists():
        return Calibration(setting)
    place = Place(file=str(path))
    found = calibration_in(read_measured(path, place, ANOTHER), place)
    if found.setting != setting:
        told = _difference(found.setting, setting)
        message, hint = f"the calibration there is of {told}", f"`--fresh` begins anew, {ANOTHER}"
        raise DsforgeError("DSF799", message, place, hint, exit_code=ExitCode.FINDINGS)
    return found


def _difference(theirs: Setting, own: Setting) -> str:
    if theirs.recipe_sha256 != own.recipe_sha256:
        return "another recipe, or of what this one was before"
    apart = (
        name
        for name in ("trainer", "gpu", "gpus", "host", "steps")
        if getattr(theirs, name) != getattr(own, name)
    )
    return ", ".join(f"{name} {getattr(theirs, name)}, not {getattr(own, name)}" for name in apart)


def _try(
    loaded: LoadedRecipe,
    values: dict[str, Any],
    steps: int,
    run: Run,
    box: TimeBox,
) -> tuple[Trial | None, int | None]:
    """Return a layout's trial, None where it was cut short, and the exit code of who stopped it."""
    began = Trial(values, None, None, None, None, None, None)
    try:
        recipe = short_run(loaded, values, steps)
        began = replace(began, **_predicted(make_plan(recipe)))
        outcome = run(recipe)
    except DsforgeError as error:
        if error.exit_code == ExitCode.ENVIRONMENT:
            raise  # it is this machine's fault, and every layout would meet it
        return replace(began, failure=f"{error.code}: {error.message}"), None
    trial = replace(began, run_id=outcome.run_id, measured=measurement(_lines(outcome)))
    if outcome.exit.code == 0 or outcome.exit.kind in _STOPPED:
        cut = outcome.exit.code != 0
        stopped = outcome.exit.code if cut and not box.is_over else None
        if trial.measured is not None:
            return trial, stopped
        if cut:
            return None, stopped
    why = outcome.exit.message.splitlines()[0] if outcome.exit.code else f"fewer than {FEWEST_STEPS} steps"
    return replace(trial, measured=None, failure=f"{outcome.exit.kind}: {why}"), None


def _predicted(plan: Plan) -> dict[str, Any]:
    step, memory = estimate(plan), memory_estimate(plan)
    return {
        "work_sha256": work_sha256(plan),
        "predicted_step_seconds": None if isinstance(step, str) else step.step.total,
        # What is measured is rank 0's, of the first stage, without CUDA's context.
        "predicted_memory_bytes": None if isinstance(memory, str) else memory.stages[0].allocated,
    }


def _lines(outcome: RunOutcome) -> Sequence[MetricsLine]:
    return read_metrics(RunDir(outcome.run_dir).attempt(outcome.attempts))


def measurement(lines: Sequence[MetricsLine]) -> Measurement | None:
    """Return what the steps after the warm-up took, None where there are too few of them."""
    after = lines[WARM_UP_STEPS:]
    seconds = [line.step_seconds for line in after if line.step_seconds is not None]
    if len(seconds) < FEWEST_STEPS:
        return None
    low, _, high = quantiles(seconds, n=4)
    middle = median(seconds)
    held = [line.memory_bytes for line in lines if line.memory_bytes is not None]
    return Measurement(middle, (high - low) / middle, len(seconds), max(held, default=None))
