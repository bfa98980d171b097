"""`dsforge runs`: what was started, what it did, how to stop it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

from dsforge.base.exits import ExitCode
from dsforge.base.text import first_line, in_runs
from dsforge.base.units import format_bytes, format_count, format_seconds
from dsforge.cli import complete, output
from dsforge.cli.options import JsonOption, RunsOption, runs_root
from dsforge.cli.panels import PanelGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsforge.records.run_manifest import Revision
    from dsforge.runs.details import AttemptDetails, MetricsSummary, RunDetails, Trouble
    from dsforge.runs.logs import RunLogs
    from dsforge.runs.registry import RunSummary

app = typer.Typer(help="Runs: list, show, logs, stop, reap.", cls=PanelGroup)

_ERROR_LINES = 20
_MOST_FILES = 4
_MOST_FAILURES = 5
_MOST_OF_PACE = 6
_MOST_HOSTS = 8
"""Hosts of an attempt that are shown by name; --json has all."""
_RUN_HELP = "A run's id, the beginning of one, or `latest`."
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help=_RUN_HELP, autocompletion=complete.runs)]
LatestRunArgument = Annotated[
    str, typer.Argument(metavar="[RUN]", help=_RUN_HELP, autocompletion=complete.runs)
]


@app.command("list")
def list_runs(runs: RunsOption = None, json: JsonOption = False) -> None:
    """List runs, newest first."""
    from dsforge.runs import registry

    if json:
        output.use_json()
    found = registry.list_runs(runs_root(runs))
    if json:
        output.as_json({"runs": [_as_dict(run) for run in found]})
        return
    rows = [
        (run.run_id, run.state, run.trainer or "-", _when(run.started_time), str(run.attempt), _ending(run))
        for run in found
    ]
    output.table("", ("run", "state", "trainer", "started", "attempt", "ended with"), rows)


def _as_dict(run: RunSummary) -> dict[str, object]:
    from dataclasses import asdict

    return {**asdict(run), "path": str(run.path)}


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _ending(run: RunSummary) -> str:
    if run.exit is not None:
        return f"{run.exit.code} {first_line(run.exit.message)}"
    return run.loss.message if run.loss else "-"


@app.command("show")
def show_run(run: LatestRunArgument = "latest", runs: RunsOption = None, json: JsonOption = False) -> None:
    """Show one run: manifest, state, metrics in figures, and how it failed."""
    from dataclasses import asdict

    from dsforge.runs import details, logs, registry

    if json:
        output.use_json()
    run_dir = registry.find_run(runs_root(runs), run)
    found = details.show_run(run_dir)
    if json:
        way_on = found.way_on.as_dict() if found.way_on else None
        output.as_json({**asdict(found), "summary": _as_dict(found.summary), "way_on": way_on})
        return
    summary, manifest, metrics = found.summary, found.manifest, found.metrics
    output.line(f"{summary.run_id}: {summary.state}, {_ending(summary)}")
    output.line(f"  records   {summary.path}")
    if found.layout_words is not None:
        output.line(f"  layout    {found.layout_words}")
    started = _when(summary.started_time)
    took = (summary.ended_time or time.time()) - summary.started_time
    output.line(
        f"  started   {started} on {_where(summary)}, {format_seconds(took)}, attempt {summary.attempt}"
    )
    if summary.loss is not None and summary.loss.time is not None:
        output.line(f"  lost      {_when(summary.loss.time)}")
    _show_attempts(found)
    _show_pace(found.attempts)
    _show_trouble(found.trouble)
    if manifest is not None:
        output.line(f"  recipe    {manifest.recipe_path}, {_revision(manifest.revision)}")
        versions = ", ".join(f"{name} {text or '-'}" for name, text in sorted(manifest.versions.items()))
        output.line(f"  versions  {versions}")
    if metrics is not None:
        loss = f"loss {metrics.first_loss:.4f} to {metrics.last_loss:.4f}"
        output.line(f"  metrics   steps {metrics.first_step} to {metrics.last_step}, {loss}")
        output.line(f"            {_figures(metrics)}")
    if (judged := found.validation) is not None:
        last = f"loss {judged.last_loss:.4f} after step {judged.last_step}"
        best = f"best {judged.best_loss:.4f} after step {judged.best_step}"
        output.line(f"  validated {last}, {best}, over {judged.samples or 'an unknown number of'} samples")
    if found.way_on is not None:
        if found.way_on.words not in _ending(summary):
            output.line(f"  left      {found.way_on.words}")
        if found.way_on.command:
            output.line(f"  go on     {found.way_on.command}")
    if summary.state == "failed" and found.attempts:
        _show_ranks(found.attempts[-1])
        _show_failure(summary, logs.read_logs(run_dir))


def _show_pace(attempts: tuple[AttemptDetails, ...]) -> None:
    """Tell the last times that the steps of a run became slow, or no longer were."""
    told = [event for one in attempts for event in one.events if event.name in ("slow", "eased")]
    for event in told[-_MOST_OF_PACE:]:
        output.line(f"  {event.name:<9} {_when(event.time)}: {first_line(event.message)}")


def _show_trouble(trouble: Trouble) -> None:
    """Tell the steps that were skipped, the last losses that jumped, and what ranks compared."""
    if skipped := trouble.skipped_steps:
        steps = "step" if len(skipped) == 1 else "steps"
        output.line(f"  skipped   {len(skipped)} {steps} whose gradients overflowed: {in_runs(skipped)}")
    for event in trouble.spikes[-_MOST_OF_PACE:]:
        output.line(f"  spike     {first_line(event.message)}")
    compared = {what: trouble.checked.get(what, 0) for what in ("gradients", "parameters")}
    if tensors := trouble.checked.get("dealt_out"):
        output.line(f"  checked   every element of {tensors} gradients has one replica that updates it")
    if told := [f"{what} {times} times" for what, times in compared.items() if times]:
        output.line(f"  checked   equal between ranks: {', '.join(told)}")


def _show_attempts(found: RunDetails) -> None:
    """Tell why each attempt was made, on which hosts where there are several, and why there was no other."""
    for restart in found.state.restarts:
        why = f" ({_spelt(restart.reason)})" if restart.reason is not None else ""
        output.line(f"  restart   attempt {restart.attempt}{why}: {first_line(restart.why)}")
    if len(found.attempts) > 1 and any(len(attempt.hosts) > 1 for attempt in found.attempts):
        for attempt in found.attempts:
            output.line(f"  hosts     attempt {attempt.number} on {_some(attempt.hosts)}")
    end = found.state.exit
    if end is not None and end.not_restarted is not None:
        why = f" ({_spelt(end.reason)})" if end.reason is not None else ""
        output.line(f"  ended     not restarted{why}: {end.not_restarted}")


def _spelt(reason: str) -> str:
    return reason.replace("_", " ")


def _some(hosts: Sequence[str]) -> str:
    more = len(hosts) - _MOST_HOSTS
    return ", ".join(hosts[:_MOST_HOSTS]) + (f" and {more} more" if more > 0 else "")


def _where(run: RunSummary) -> str:
    return f"{run.host}, in {run.scheduler} job {run.job}" if run.job else run.host


def _figures(metrics: MetricsSummary) -> str:
    """Return speed and memory in words, as far as they are known."""
    pace, seconds, peak = (
        metrics.median_tokens_per_second,
        metrics.median_step_seconds,
        metrics.peak_memory_bytes,
    )
    found = [f"{format_count(pace)} tokens/s"] if pace is not None else []
    found += [f"{seconds:.3g} s a step"] if seconds is not None else []
    found += [f"{format_bytes(peak)} at the peak"] if peak is not None else []
    return ", ".join(found) or "speed is not known"


def _show_ranks(attempt: AttemptDetails) -> None:
    """Tell which ranks ended for which reason."""
    from dsforge.launch.reasons import reason_of_rank

    by_word: dict[str, list[int]] = {}
    for record in attempt.exits:
        by_word.setdefault(reason_of_rank(record) or "ok", []).append(record.rank)
    recorded = {record.rank for record in attempt.exits}
    if left := [report.rank for report in attempt.reports if report.rank not in recorded]:
        by_word["no exit record"] = left
    if by_word:
        told = [f"{word.replace('_', ' ')}: {in_runs(ranks)}" for word, ranks in by_word.items()]
        output.line(f"  ranks     {'; '.join(told)}")


def _show_failure(run: RunSummary, found: RunLogs) -> None:
    if run.exit is not None and run.exit.rank is not None:
        host = f" on host {run.exit.host}" if run.exit.host else ""
        output.line(f"  failed    rank {run.exit.rank}{host}")
    if run.exit is not None and run.exit.hint is not None:
        output.line(f"  hint      {run.exit.hint}")
    for log in found.files[:_MOST_FILES]:
        output.line(f"  log       {log}")
    if (left := len(found.files) - _MOST_FILES) > 0:
        output.line(f"  log       and {left} more files beside them")
    for line in found.first_error[:_ERROR_LINES]:
        output.line(f"  | {line.text}")
    if (left := len(found.first_error) - _ERROR_LINES) > 0:
        output.line(f"  | and {left} more lines: `dsforge runs logs {run.run_id}`")


def _revision(revision: Revision | None) -> str:
    if revision is None:
        return "not in a git repository"
    return f"revision {revision.commit}{', with uncommitted changes' if revision.dirty else ''}"


@app.command("logs")
def show_logs(
    run: RunArgument,
    rank: Annotated[int | None, typer.Option(min=0, help="One rank only.")] = None,
    node: Annotated[int | None, typer.Option(min=0, help="The ranks of one node only.")] = None,
    attempt: Annotated[int | None, typer.Option(min=1, help="Default: the latest.")] = None,
    runs: RunsOption = None,
) -> None:
    """Print the ranks' output, the first error first; what other ranks say alike stands there once."""
    from dsforge.runs import logs, registry

    found = logs.read_logs(registry.find_run(runs_root(runs), run), rank=rank, node=node, attempt=attempt)
    for number, failure in enumerate(found.failures[:_MOST_FAILURES]):
        where = f"rank {failure.rank}{f' on host {failure.host}' if failure.host else ''}"
        output.line(f"== {'another' if number else 'first'} error: {where}")
        for text in failure.lines:
            output.line(f"[rank {failure.rank}] {text}")
        if failure.same:
            output.line(f"== {len(failure.same)} more ranks the same: {in_runs(failure.same)}")
    if (left := len(found.failures) - _MOST_FAILURES) > 0:
        output.line(f"== {left} more kinds of errors: see `--rank` and `--node`")
    if found.failures:
        output.line("== all lines")
    silent = True
    for line in found.lines():
        mark = "launcher" if line.rank is None else f"rank {line.rank}"
        silent = silent and line.rank is None
        output.line(f"[{mark}] {line.text}")
    if silent:
        whose = "the ranks" if node is None else f"the ranks of node {node}"
        who = whose if rank is None else f"rank {rank}"
        steps = f"the steps are in {found.metrics}, and " if found.metrics.is_file() else ""
        output.note(
            f"note: {who} wrote no output in attempt {found.attempt}; "
            f"{steps}`dsforge runs show {found.run_id}` shows what the run did"
        )


@app.command("stop")
def stop_run(
    run: RunArgument,
    now: Annotated[bool, typer.Option("--now", help="Make no checkpoint first.")] = False,
    runs: RunsOption = None,
    json: JsonOption = False,
) -> None:
    """Stop a run after a checkpoint, and every process of it, also when its supervisor is dead.

    Exit 3 when something runs still, a host does not answer, or a job may exist that is not known.
    """
    from dsforge.launch import reap
    from dsforge.runs import registry

    if json:
        output.use_json()
    result = reap.stop(registry.find_run(runs_root(runs), run), dict(os.environ), at_once=now)
    if json:
        output.as_json({"run_id": result.run_id, "how": result.how, "message": result.message})
    else:
        output.line(f"{result.run_id}: {result.message}")
    raise typer.Exit(int(ExitCode.OK if result.is_done else ExitCode.ENVIRONMENT))


@app.command("reap")
def reap_runs(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]", help=f"{_RUN_HELP} Default: all that are lost.", autocompletion=complete.runs
        ),
    ] = None,
    runs: RunsOption = None,
    json: JsonOption = False,
) -> None:
    """End what runs whose supervisor is dead have left, on every host. Exit 3 when a host does not answer."""
    from dataclasses import asdict

    from dsforge.launch import reap
    from dsforge.runs import registry

    if json:
        output.use_json()
    root = runs_root(runs)
    chosen = [registry.find_run(root, run)] if run is not None else registry.lost_runs(root)
    reaped = [reap.reap(run_dir, dict(os.environ)) for run_dir in chosen]
    if json:
        output.as_json({"runs": [{**asdict(one), "clean": one.is_clean} for one in reaped]})
    else:
        for one in reaped:
            output.line(f"{one.run_id}: {one.words}")
        if not reaped:
            output.note("note: no run is lost")
    raise typer.Exit(int(ExitCode.OK if all(one.is_clean for one in reaped) else ExitCode.ENVIRONMENT))
