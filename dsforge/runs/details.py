"""What one run was and did: manifest, state, attempts, and a summary of its metrics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from dsforge.base.canonical import loads
from dsforge.base.files import read_own
from dsforge.base.text import counted
from dsforge.plan import words
from dsforge.records.run_dir import AttemptDir, RunDir
from dsforge.records.run_manifest import RunManifest, read_run_manifest
from dsforge.records.run_state import RunState
from dsforge.records.streams import EvalLine, Event, ExitRecord, MetricsLine, WorldReport
from dsforge.records.way_on import Beginning, WayOn, find_way_on
from dsforge.runs.reading import (
    read_events,
    read_exits,
    read_hosts,
    read_metrics,
    read_reports,
    read_validations,
)
from dsforge.runs.registry import LOST, RunSummary, state_or_fail, summarise

_ENDED_EARLY = ("failed", "stopped", LOST)


@dataclass(frozen=True, slots=True)
class MetricsSummary:
    """Training in figures. The first step of an attempt, which warms up, is left out of the medians.

    What no line of an external program tells is None.
    """

    steps: int
    first_step: int
    last_step: int
    first_loss: float
    last_loss: float
    median_step_seconds: float | None
    median_tokens_per_second: float | None
    peak_memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class ValidationSummary:
    """The validations of a run: how many, the last and the best."""

    evaluations: int
    samples: int | None
    last_step: int
    last_loss: float
    best_step: int
    best_loss: float


@dataclass(frozen=True, slots=True)
class AttemptDetails:
    """One attempt: its hosts by node, ranks as they reported, how they ended, and what happened."""

    number: int
    hosts: tuple[str, ...]
    reports: tuple[WorldReport, ...]
    exits: tuple[ExitRecord, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Steps that were not as others: skipped for gradients that overflowed, or with a loss that jumped.

    `checked`: how often gradients and parameters were compared between ranks and were equal, over attempts
    that ended well; `dealt_out`: of how many gradients every element was seen to be updated by one replica.
    """

    skipped_steps: tuple[int, ...]
    spikes: tuple[Event, ...]
    checked: dict[str, int]


@dataclass(frozen=True, slots=True)
class RunDetails:
    """Everything recorded of a run; `metrics` None before the first step, `validation` before the first one.

    `layout`: degrees, schedule, trainer, precision, optimizer and offload of its plan, and `layout_words` the
    same in words; None when its bundle cannot be read.
    `way_on`: from what a run that ended early, by itself or not, can go on; None for any other run.
    """

    summary: RunSummary
    state: RunState
    manifest: RunManifest | None
    attempts: tuple[AttemptDetails, ...]
    metrics: MetricsSummary | None
    validation: ValidationSummary | None
    layout: dict[str, Any] | None
    layout_words: str | None
    way_on: WayOn | None
    trouble: Trouble


def show_run(run_dir: RunDir) -> RunDetails:
    """Return a run's details; DsforgeError when it has no readable state."""
    state = state_or_fail(run_dir)
    numbers = run_dir.attempts()
    summary, manifest = summarise(run_dir), read_run_manifest(run_dir.manifest)
    # The last attempt may have been planned anew.
    bundles = [run_dir.attempt(number).bundle for number in reversed(numbers)]
    plan = _plan(next((one for one in bundles if one.is_dir()), run_dir.bundle) / "plan.json")
    metrics = summarise_metrics([read_metrics(run_dir.attempt(number)) for number in numbers])
    attempts = tuple(_attempt(number, run_dir.attempt(number)) for number in numbers)
    layout, layout_words = _layout(plan)
    begun = _beginning(run_dir, manifest, plan) if summary.state in _ENDED_EARLY else None
    return RunDetails(
        summary=summary,
        state=state,
        manifest=manifest,
        attempts=attempts,
        metrics=metrics,
        validation=summarise_validations([read_validations(run_dir.attempt(number)) for number in numbers]),
        layout=layout,
        layout_words=layout_words,
        way_on=find_way_on(begun, metrics.last_step if metrics else None) if begun else None,
        trouble=summarise_trouble([event for attempt in attempts for event in attempt.events]),
    )


def _plan(path: Path) -> Any:
    try:
        return loads(read_own(path))
    except (OSError, ValueError):
        return None


def _layout(plan: Any) -> tuple[dict[str, Any] | None, str | None]:
    """Return what a plan says of its layout, by name and in words; None for one that is not a plan."""
    try:
        facts = words.facts(plan)
        told = [words.degrees(plan), f"ZeRO-{facts['zero']}", counted(facts["world_size"], "rank")]
        return facts, ", ".join([*told, f"trainer {facts['trainer']}", *words.choices(plan)])
    except (ValueError, TypeError, KeyError, AttributeError):
        return None, None


def _beginning(run_dir: RunDir, manifest: RunManifest | None, plan: Any) -> Beginning | None:
    try:
        resume = str(plan["checkpoint"]["resume"])
    except (TypeError, KeyError):
        return None
    if manifest is None:
        return None
    named = manifest.checkpoint_dir
    return Beginning(manifest.command, Path(named or run_dir.checkpoints), named is not None, resume)


def summarise_metrics(attempts: list[tuple[MetricsLine, ...]]) -> MetricsSummary | None:
    """Return the figures of a run from its attempts; a repeated step counts once, as it was last."""
    by_step = {line.step: line for lines in attempts for line in lines}
    if not by_step:
        return None
    ordered = [by_step[step] for step in sorted(by_step)]
    warm = [line for lines in attempts for line in lines[1:]] or ordered
    return MetricsSummary(
        steps=len(ordered),
        first_step=ordered[0].step,
        last_step=ordered[-1].step,
        first_loss=ordered[0].loss,
        last_loss=ordered[-1].loss,
        median_step_seconds=_median(line.step_seconds for line in warm),
        median_tokens_per_second=_median(line.tokens_per_second for line in warm),
        peak_memory_bytes=max(
            (line.memory_bytes for line in ordered if line.memory_bytes is not None), default=None
        ),
    )


def _median(found: Iterable[float | None]) -> float | None:
    known = [one for one in found if one is not None]
    return median(known) if known else None


def summarise_validations(attempts: list[tuple[EvalLine, ...]]) -> ValidationSummary | None:
    """Return the figures of a run's validations; one that was repeated counts once, as it was last."""
    by_step = {line.step: line for lines in attempts for line in lines}
    if not by_step:
        return None
    last = by_step[max(by_step)]
    best = min(by_step.values(), key=lambda line: (line.loss, line.step))
    return ValidationSummary(len(by_step), last.samples, last.step, last.loss, best.step, best.loss)


def summarise_trouble(events: Iterable[Event]) -> Trouble:
    """Return what a run's events tell of single steps; one that was repeated counts once, as it was last."""
    skipped: set[int] = set()
    spikes: dict[int, Event] = {}
    checked: dict[str, int] = {}
    for event in events:
        step = event.data.get("step")
        if event.name == "skipped" and isinstance(step, int):
            skipped.add(step)
        elif event.name == "spike" and isinstance(step, int):
            spikes[step] = event
        elif event.name == "finished" and isinstance(found := event.data.get("checks"), dict):
            for what, times in found.items():
                before = checked.get(what, 0)
                checked[what] = max(before, times) if what == "dealt_out" else before + times
    return Trouble(tuple(sorted(skipped)), tuple(spikes[step] for step in sorted(spikes)), checked)


def _attempt(number: int, attempt: AttemptDir) -> AttemptDetails:
    return AttemptDetails(
        number=number,
        hosts=read_hosts(attempt),
        reports=read_reports(attempt),
        exits=read_exits(attempt),
        events=read_events(attempt),
    )
