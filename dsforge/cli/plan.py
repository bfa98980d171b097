"""`dsforge plan`: the resolved layout, parameters and model states, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsforge.base.errors import Finding, Place, Severity
from dsforge.base.exits import ExitCode
from dsforge.base.text import counted, one_line
from dsforge.base.units import format_bytes, format_count
from dsforge.cli import output
from dsforge.cli.memory import Memory, memory_of
from dsforge.cli.options import (
    ArgumentOption,
    ChangesArgument,
    Goal,
    JsonOption,
    ObjectiveOption,
    PassingOn,
    ProfileOption,
    RecipeArgument,
    SetOption,
    load,
)
from dsforge.cli.time_lines import measured_lines, time_lines

if TYPE_CHECKING:
    from dsforge.plan.estimate import Estimate
    from dsforge.plan.measurements import Factor, Known
    from dsforge.plan.search.best import Objective
    from dsforge.plan.search.run import Searched
    from dsforge.plan.types import DataSet, Plan, Train
    from dsforge.recipe.load import LoadedRecipe

_COLUMNS = 120
"""Columns of time that the schedule in JSON is for."""
_TOP = 5
"""Layouts that a search shows where nobody says how many."""


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    app.command("plan", cls=PassingOn, rich_help_panel=panel)(plan)


def plan(
    recipe: RecipeArgument,
    changes: ChangesArgument = None,
    set_: SetOption = None,
    argument: ArgumentOption = None,
    profile: ProfileOption = None,
    search: Annotated[
        bool, typer.Option("--search", help="Choose the whole layout, whatever the recipe says of it.")
    ] = False,
    top: Annotated[
        int | None,
        typer.Option("--top", metavar="N", min=1, max=1000, help="Show the N best layouts side by side."),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option("--gpus", metavar="N", min=1, help="Plan for N GPUs instead of the recipe's cluster."),
    ] = None,
    objective: ObjectiveOption = Goal.time,
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", metavar="FILE", help="What `dsforge tune` measured: scales estimates."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Resolve a recipe: degrees, batch, stages, parameters, model states. Exit 1 when a rule refuses it."""
    from dsforge.base.canonical import dumps
    from dsforge.plan.ranking import opened, ranking, scaled_by
    from dsforge.plan.resolve import make_plan

    loaded = load(recipe, changes, set_, profile, argument, json=json)
    loaded = opened(loaded, everything=search, gpus=gpus)
    best = None
    if search or top is not None or objective is not Goal.time:
        best = ranking(loaded, top=top or (_TOP if search else 1), objective=objective.value)
        if objective is Goal.cost and best.found:
            loaded = opened(loaded, gpus=best.found[0].gpus)
    chosen = best.found[0].candidate if best is not None and best.found else None
    made = make_plan(loaded, refuse=False, objective=objective.value, best=chosen)
    known = _calibration(calibration, made)
    factor = known.factor if known else None
    time, memory = _estimate(made, loaded, factor), memory_of(loaded, made)
    if best is not None:
        best = scaled_by(best, factor)
    if json:
        told = {"why": time} if isinstance(time, str) else time.to_json_value()
        told = {"estimate": told, "memory": memory.to_json_value(), **_layouts(made, best, objective.value)}
        if known is not None:
            told["calibration"] = known.as_dict()
        output.data(dumps({**made.to_json_value(), **told}))
    else:
        _print(made, time, memory, known)
        _print_layouts(made, best, objective.value)
    findings = [Finding.from_dict(found) for found in made.findings]
    findings += memory.findings(loaded, made)
    output.findings(findings)
    refused = any(found.severity is Severity.ERROR for found in findings)
    raise typer.Exit(int(ExitCode.FINDINGS if refused else ExitCode.OK))


def _calibration(path: Path | None, made: Plan) -> Known | None:
    from dsforge.plan.measurements import calibration_in, known_by
    from dsforge.recipe.measured_file import read_measured

    if path is None:
        return None
    place = Place(file=str(path))
    found = calibration_in(read_measured(path, place, "`dsforge tune RECIPE` writes it"), place)
    return known_by(found, made, place)


def _estimate(made: Plan, loaded: LoadedRecipe, factor: Factor | None) -> Estimate | str:
    from dsforge.plan.estimate import estimate
    from dsforge.plan.run_cost import Prices

    cluster = loaded.recipe.cluster
    prices = Prices(cluster.price_per_gpu_hour, cluster.power_overhead, cluster.storage_gb_per_s)
    return estimate(made, prices, cluster.shape, factor)


def _layouts(made: Plan, best: Searched | None, objective: Objective) -> dict[str, object]:
    from dsforge.plan.ranking import as_json
    from dsforge.plan.timeline import schedule_of

    schedule = schedule_of(made, _COLUMNS)
    told: dict[str, object] = {"schedule": schedule.to_json_value() if schedule else None}
    if best is not None:
        told["layouts"] = as_json(best, made.batch.global_size * made.batch.seq_len, objective)
    return told


def _print_layouts(made: Plan, best: Searched | None, objective: Objective) -> None:
    from dsforge.cli import layouts, timeline
    from dsforge.plan.timeline import schedule_of

    if (schedule := schedule_of(made, timeline.columns_of(output.width()))) is not None:
        output.line()
        timeline.show(schedule, output.width())
    if best is not None and best.found:
        output.line()
        layouts.show(best, made.batch.global_size * made.batch.seq_len, objective)


def _print(made: Plan, time: Estimate | str, memory: Memory, known: Known | None) -> None:
    from dsforge.plan import words

    layout, batch, model, parameters = made.layout, made.batch, made.model, made.parameters
    active = ""
    if parameters.active is not None and parameters.active < parameters.total:
        active = f" ({format_count(parameters.active)} for a token)"
    output.line(
        f"{one_line(made.name)}: {model.name}, {format_count(parameters.total)} parameters{active}, "
        f"trainer {made.trainer}"
    )
    where = f"{layout.nodes} x {layout.gpus_per_node} {made.gpu}"
    value = made.to_json_value()
    output.line(f"  layout   {words.degrees(value)} = {counted(layout.world_size, 'rank')} on {where}")
    precision, *others = words.choices(value)
    told = [f"ZeRO-{layout.zero}", precision, f"recompute {_recompute(made.train)}", *others]
    output.line(f"  memory   {', '.join(told)}")
    triple = f"micro {batch.micro} x {batch.accumulation_steps} accumulation x DP {layout.dp}"
    output.line(f"  batch    global {batch.global_size} = {triple}, {batch.seq_len} tokens a sample")
    tokens = made.train.steps * batch.global_size * batch.seq_len
    output.line(f"  length   {counted(made.train.steps, 'step')}, {format_count(tokens)} tokens")
    output.line(f"  dropout  {made.train.dropout:g}, of attention {made.train.attention_dropout:g}")
    if (experts := made.model.experts) is not None:
        over = {"layer": "each layer", "model": "all layers together"}[made.train.balance_over]
        loss = f"balance loss {made.train.balance_loss:g} over {over}"
        output.line(f"  experts  {experts.active} of {experts.count} for a token, {loss}")
    output.line(f"  data     {_data(made)}")
    if made.train.eval_every:
        output.line(f"  valid    {_validation(made)}")
    if made.checkpoint.init is not None:
        output.line(f"  start    the weights in {one_line(made.checkpoint.init)}")
    if made.external is not None:
        file = one_line(f"{made.external.path}/{made.external.entry}")
        output.line(f"  program  {made.external.flavour}, {file}, {len(made.external.arguments)} arguments")
    for line in time_lines(time):
        output.line(f"  {line}")
    for line in measured_lines(known, memory.estimate):
        output.line(f"  {line}")
    output.line()
    _print_memory(made)
    if not isinstance(memory.estimate, str):
        output.line()
        memory.show()
    if made.decisions:
        output.line()
        output.table(
            "Decided here", ("key", "value", "why"), [(d.key, str(d.value), d.why) for d in made.decisions]
        )


def _print_memory(made: Plan) -> None:
    from dsforge.catalog.tables import find_hardware

    capacity = find_hardware(made.gpu).memory_bytes
    rows = [
        (
            str(stage.stage),
            f"{stage.first_layer}-{stage.first_layer + stage.layers - 1}",
            " ".join(
                filter(None, ["embedding" if stage.has_embedding else "", "head" if stage.has_head else ""])
            ),
            format_count(stage.parameters),
            *(
                format_bytes(stage.state_bytes_per_rank[kind])
                for kind in ("parameters", "gradients", "optimizer")
            ),
            format_bytes(sum(stage.state_bytes_per_rank.values())),
            format_bytes(stage.fp32_gradient_sum_bytes_per_rank),
            format_bytes(stage.total_bytes_per_rank),
        )
        for stage in made.layout.stages
    ]
    of = f" of {format_bytes(capacity)}" if capacity else ""
    held = ("weights", "gradients", "optimizer", "states", "fp32 sums", f"total{of}")
    title = "Memory of one rank, by stage (activations and buffers come on top)"
    output.table(title, ("stage", "layers", "also", "parameters", *held), rows)
    output.line(
        "  fp32 sums: what bf16 gradients of micro-batches are added up in; total = states + fp32 sums"
    )
    if (places := made.offload).optimizer != "none":
        what = "the optimizer's states" + (" and parameters" if places.parameters != "none" else "")
        if made.accelerator == "cpu":
            output.line(f"  offloaded: {what}; a CPU has no other memory to spare, so their bytes count here")
        else:
            output.line(f"  off the GPU: {what}; their bytes count to the host, not here")
    if capacity:
        output.line(
            f"  the fullest rank's total is {made.layout.fullest_rank_bytes / capacity:.0%} of the "
            f"{format_bytes(capacity)} of each {made.gpu}"
        )
    nominal = made.nominal
    output.line(
        f"  nominal: {format_count(nominal.parameters)} x {nominal.bytes_per_parameter} B = "
        f"{format_bytes(nominal.model_state_bytes)}, / {nominal.model_parallel_ranks} = "
        f"{format_bytes(nominal.bytes_per_gpu)} a GPU ({nominal.bytes_formula}),"
    )
    output.line("    the field's back-of-the-envelope figure, before ZeRO; not this layout's")


def _recompute(train: Train) -> str:
    several = f", blocks of {train.recompute_every} layers" if train.recompute_every > 1 else ""
    return f"{train.recompute}{several}"


def _validation(made: Plan) -> str:
    train = made.train
    when = f"{train.eval_samples} samples every {train.eval_every} steps and after the last"
    return f"{when}, of {_blend(made.data.valid) or 'documents of the built-in corpus that are held out'}"


def _blend(sets: Sequence[DataSet]) -> str:
    """Return each set with its share of the samples, a single one by name alone."""
    if len(sets) == 1:
        return one_line(sets[0].prefix)
    total = sum(one.weight for one in sets)
    return ", ".join(f"{100 * one.weight / total:.4g} % {one_line(one.prefix)}" for one in sets)


def _data(made: Plan) -> str:
    if made.data.train:
        return _blend(made.data.train)
    if made.data.builtin_vocab is None:
        return "what the program itself reads (no data in the recipe)"
    return f"the built-in corpus (no data in the recipe), {made.data.builtin_vocab} tokens of vocabulary used"
