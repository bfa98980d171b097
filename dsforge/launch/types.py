"""What a launch is asked, what it reports on the way, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dsforge.base.errors import DsforgeError
from dsforge.plan.types import Plan
from dsforge.records.run_state import RunExit
from dsforge.records.streams import Event, MetricsLine
from dsforge.render.bundle import Bundle


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """One run to start: `bundle` is what is written and run.

    `environ` is the caller's environment, `extra_environ` goes over it. `corpus` is the prefix of the
    built-in corpus; `command` what the user typed, for the manifest. `replan`: makes the request for the same
    recipe without some of its hosts; DsforgeError where that is no plan.
    """

    plan: Plan
    bundle: Bundle
    runs_root: Path
    recipe_root: Path
    recipe_path: str
    recipe_text: str
    command: tuple[str, ...]
    environ: Mapping[str, str]
    corpus: str | None = None
    extra_environ: Mapping[str, str] = field(default_factory=dict)
    replan: Callable[[Sequence[str]], LaunchRequest] | None = None


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """Something to tell the user while a run goes on.

    `name`: note, prebuild, created, started, rank_up, joined, step, validated, event, rank_ended,
    inquiry, slow, eased, stopping, restart, ended.
    """

    time: float
    name: str
    message: str
    attempt: int = 0
    rank: int | None = None
    metrics: MetricsLine | None = None
    event: Event | None = None


OnEvent = Callable[[ProgressEvent], None]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended. Losses are by step; a step repeated after a restart keeps the later value."""

    run_id: str
    run_dir: Path
    attempts: int
    exit: RunExit
    losses: dict[int, float]
    validation_losses: dict[int, float]
    last_metrics: MetricsLine | None
    tail: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """A program with what it is given: `environ` are the variables set over the caller's environment."""

    argv: tuple[str, ...]
    environ: dict[str, str]
    cwd: Path


@dataclass(frozen=True, slots=True)
class Started:
    """What a bundle's script becomes: an argument list, all its variables, the folder it is started in."""

    argv: tuple[str, ...]
    environ: dict[str, str]
    cwd: str


@dataclass(frozen=True, slots=True)
class HostStart:
    """What runs on one host of a run, `processes` times; `host` is None where a scheduler chooses it.

    `environ`: the variables set over the host's own, secrets left out. `through`: what this host runs to have
    it started, empty where one command does it for all.
    """

    node: int
    host: str | None
    argv: tuple[str, ...]
    environ: dict[str, str]
    cwd: str
    processes: int = 1
    through: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchDescription:
    """What a launch would run and write, told without touching anything.

    `started`: what launch.sh becomes, `starts` what that starts on each host; none of both where `untold`
    says why the script cannot tell it here. `refusals`: why it would not start on this machine.
    """

    run_dir: Path
    command: Command
    secret_names: tuple[str, ...]
    bundle_files: dict[str, str]
    written_files: tuple[str, ...]
    refusals: tuple[DsforgeError, ...]
    started: tuple[str, ...] = ()
    starts: tuple[HostStart, ...] = ()
    untold: str | None = None
