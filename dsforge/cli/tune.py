"""`dsforge tune`: measure a recipe's best layouts, or with --layers what stages are dealt out by."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsforge.base.errors import Severity
from dsforge.base.units import format_bytes
from dsforge.cli import output
from dsforge.cli.launch import start_options
from dsforge.cli.options import (
    ChangesArgument,
    JsonOption,
    ProfileOption,
    RecipeArgument,
    RunsOption,
    SetOption,
    load,
)

if TYPE_CHECKING:
    from dsforge.ops.layer_times import Stages
    from dsforge.ops.tune import Tuned
    from dsforge.records.calibration import Trial
    from dsforge.records.layer_times import LayerTimes

_TOP, _STEPS, _MINUTES = 4, 8, 30.0
_PLAIN = (1, False, "none", "1f1b")
"""Values that a recipe need not say."""
_ENDS = {"stopping": "stopping: this layout's run ends, and nothing of it is kept"}
"""What runs that save nothing say otherwise."""


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    app.command("tune", rich_help_panel=panel)(tune)


def tune(
    recipe: RecipeArgument,
    changes: ChangesArgument = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    layers: Annotated[
        bool,
        typer.Option("--layers", help="Measure embedding, layer and head here, for `partition: measured`."),
    ] = False,
    search: Annotated[
        bool, typer.Option("--search", help="Try layouts of any degrees, whatever the recipe says of them.")
    ] = False,
    top: Annotated[
        int | None, typer.Option("--top", metavar="N", min=1, max=100, help=f"Layouts to try. [{_TOP}]")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=5, max=1000, help=f"Steps of each; the first two warm up. [{_STEPS}]")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0.01, help=f"Time for all; the same command goes on later. [{_MINUTES:g}]"),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure anew what the file has already.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try again what the file says has failed.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write. Default: RECIPE.calibration.json or .layers.json."),
    ] = None,
    runs: RunsOption = None,
    json: JsonOption = False,
) -> None:
    """Train the best layouts for a few steps each and compare; goes on where it was cut short."""
    if not layers:
        _tune(
            load(recipe, changes, set_, profile, json=json),
            out or recipe.with_suffix(".calibration.json"),
            runs,
            search=search,
            top=top or _TOP,
            steps=steps or _STEPS,
            minutes=minutes or _MINUTES,
            fresh=fresh,
            retry=retry,
            json=json,
        )
        return
    given = {
        "--search": search,
        "--top": top,
        "--steps": steps,
        "--minutes": minutes,
        "--fresh": fresh,
        "--retry": retry,
        "--runs": runs,
    }
    if idle := [name for name, value in given.items() if value]:
        raise typer.BadParameter(f"{idle[0]} is of layouts, and --layers tries none")
    _layers(recipe, [*(changes or ()), *(set_ or ())], profile, out, json=json)


def _layers(recipe: Path, changes: list[str], profile: str | None, out: Path | None, *, json: bool) -> None:
    from dataclasses import asdict

    from dsforge.base.files import write_atomically
    from dsforge.ops.layer_times import NO_WEIGHTS, measured_layers
    from dsforge.ops.tune_files import check_own
    from dsforge.records.layer_times import KIND

    path = out or recipe.with_suffix(".layers.json")
    loaded = load(recipe, [*changes, NO_WEIGHTS], None, profile, json=json)
    check_own(path, KIND)
    times, stages = measured_layers(
        loaded,
        dict(os.environ),
        lambda: output.note("measuring an embedding, a layer and a head on this machine"),
    )
    write_atomically(path, times.to_json())
    if json:
        output.as_json({"file": str(path), "times": asdict(times), "stages": [asdict(one) for one in stages]})
        return
    _print_layers(path, times, stages)


def _print_layers(path: Path, times: LayerTimes, stages: tuple[Stages, ...]) -> None:
    rows = [
        (
            name,
            f"{1e3 * piece.forward_seconds:.3g}",
            f"{1e3 * piece.backward_seconds:.3g}",
            f"{piece.spread:.0%}",
            f"{piece.seconds / times.layer.seconds:.2f}",
        )
        for name, piece in (("embedding", times.embedding), ("layer", times.layer), ("head", times.head))
    ]
    title = f"Micro-batch of {times.micro} on {times.device}, medians of {times.repeats}"
    output.table(title, ("piece", "forward ms", "backward ms", "middle half", "in layers"), rows)
    for one in stages:
        counts = " ".join(map(str, one.layers))
        output.line(f"  partition {one.partition}: layers {counts}, the slowest stage {_ms(one)} ms")
    output.line(f"{path}: written")
    if stages:
        output.note(
            f"hint: parallel: {{partition: measured, partition_weights: {path.name}}}, beside the recipe"
        )
    else:
        output.note("hint: one stage, or virtual ones, which are equal blocks, use no such times")


def _ms(one: Stages) -> str:
    return f"{1e3 * one.slowest_seconds:.3g}"


def _tune(
    loaded: Any, path: Path, runs: Path | None, *, search: bool, steps: int, json: bool, **limits: Any
) -> None:
    from dsforge.cli.progress import Progress
    from dsforge.ops.start import start
    from dsforge.ops.tune import tune as run_tune
    from dsforge.plan.ranking import opened
    from dsforge.plan.resolve import examine

    def tell(number: int, count: int, values: Mapping[str, Any]) -> None:
        output.note(f"layout {number} of {count}: {_words(values)}")

    options, progress = start_options(runs), Progress(steps, told=_ENDS)
    loaded = opened(loaded, everything=search)
    output.findings(one for one in examine(loaded) if one.severity is not Severity.ERROR)
    tuned = run_tune(
        loaded,
        lambda one: start(one, options, progress)[1],
        tell,
        path=path,
        steps=steps,
        **limits,
    )
    with output.expendable():
        if json:
            output.as_json(_as_dict(tuned, path))
        else:
            _print(tuned, path)
    raise typer.Exit(tuned.exit_code)


def _as_dict(tuned: Tuned, path: Path) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "file": str(path),
        "unranked": tuned.layouts.unranked,
        "trials": [asdict(one) for one in tuned.trials],
        "left": tuned.left,
        "best": tuned.best.values if tuned.best else None,
        "stopped": tuned.stopped is not None,
    }


def _print(tuned: Tuned, path: Path) -> None:
    from dsforge.cli.time_lines import calibrated_words
    from dsforge.plan.measurements import factor_of
    from dsforge.plan.search.candidate import KEYS
    from dsforge.recipe.yaml_text import flow_text

    trials = tuned.trials
    if trials:
        _print_trials(trials, tuned.calibration.setting.gpu)
    if (factor := factor_of(tuned.calibration)) is not None:
        output.line(f"  measured over predicted: {calibrated_words(factor)}")
    if tuned.layouts.unranked is not None:
        output.line(f"  nothing was predicted: {tuned.layouts.unranked}")
    for values in tuned.left:
        output.line(f"not measured  {_words(values)}")
    for one in trials:
        if one.failure is not None:
            output.line(f"failed  {_words(one.values)}: {one.failure}")
    best = tuned.best
    if best is None or best.measured is None:
        output.line("nothing was measured")
    else:
        output.line(f"best  {_words(best.values)}: {best.measured.step_seconds:.3g} s a step")
        chosen = ((key, best.values[key]) for key in KEYS if best.values[key] not in _PLAIN)
        apart = (f"{key}={flow_text(value)}" for key, value in chosen)
        output.note(f"hint: for the recipe: {' '.join(apart)}")
    if trials:
        output.line(f"{path}: {sum(one.measured is not None for one in trials)} layouts measured")
    if tuned.left:
        output.note("hint: the same command goes on with what is not measured")


def _print_trials(trials: list[Trial], gpu: str) -> None:
    from dsforge.cli.layouts import choices
    from dsforge.plan.search.candidate import KEYS

    titles, rows = choices([{KEYS[key]: value for key, value in one.values.items()} for one in trials])
    is_predicted = any(one.predicted_step_seconds is not None for one in trials)
    shown = {**_MEASURED, **(_PREDICTED if is_predicted else {})}
    title = "Layouts by seconds a step" + (", on a CPU: no GPU speed" if gpu == "cpu" else "")
    table = [
        [*row, *(figure(one) for figure in shown.values())] for row, one in zip(rows, trials, strict=True)
    ]
    output.table(title, (*titles, *shown), table)


def _size(size: int | None) -> str:
    return "" if size is None else format_bytes(size)


_MEASURED: dict[str, Callable[[Trial], str]] = {
    "s a step": lambda one: f"{one.measured.step_seconds:.3g}" if one.measured else "failed",
    "middle half": lambda one: f"{one.measured.spread:.0%}" if one.measured else "",
    "memory of rank 0": lambda one: _size(one.measured.memory_bytes) if one.measured else "",
}
_PREDICTED: dict[str, Callable[[Trial], str]] = {
    "predicted s": lambda one: f"{one.predicted_step_seconds:.3g}" if one.predicted_step_seconds else "",
    "predicted memory": lambda one: _size(one.predicted_memory_bytes),
}


def _words(values: Mapping[str, Any]) -> str:
    degrees = " x ".join(
        f"{name.upper()} {values[f'parallel.{name}']}"
        for name in ("tp", "pp", "cp", "dp")
        if name != "cp" or values["parallel.cp"] > 1
    )
    within = [
        f"{name.upper()} {values[f'parallel.{name}']}"
        for name in ("ep", "vp")
        if values[f"parallel.{name}"] > 1
    ]
    others = [f"micro {values['batch.micro']}", f"ZeRO-{values['parallel.zero']}"]
    if values["train.recompute"] != "none":
        others.append(f"recompute {values['train.recompute']}")
    return ", ".join([degrees, *within, *others])
