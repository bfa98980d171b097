"""Lines of a run's streams: metrics, validations, events, world reports, heartbeats, exit records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from dsforge.base.canonical import loads
from dsforge.base.files import open_own
from dsforge.records.stacks import Frame
from dsforge.records.typed import build

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class _Line:
    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping with the kind of the line."""
        return {"v": SCHEMA_VERSION, "kind": self.kind(), **asdict(self)}

    @classmethod
    def kind(cls) -> str:
        """Return the word that marks this line in a mixed stream."""
        raise NotImplementedError  # abstract: each line type names itself

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Build from a parsed line, without a newer version's keys; TypeError for a value of another type."""
        known = {field.name for field in fields(cls)}
        return build(cls, {key: value for key, value in data.items() if key in known})


@dataclass(frozen=True, slots=True)
class MetricsLine(_Line):
    """One optimizer step. `tokens_per_second` counts the whole job; memory is the peak of rank 0.

    What an external program does not print, and nothing else tells, is None.
    """

    time: float
    step: int
    loss: float
    grad_norm: float | None
    learning_rate: float | None
    tokens_per_second: float | None
    step_seconds: float | None
    memory_bytes: int | None
    clipped: bool | None = None
    first_sample: int | None = None
    last_sample: int | None = None
    loss_scale: float | None = None
    """What fp16 losses were multiplied by."""
    skipped: bool | None = None
    """Gradients overflowed, in fp16 or in bf16: there is no norm, and the weights stayed as they were."""

    @classmethod
    def kind(cls) -> str:
        """Return the mark of a metrics line."""
        return "metrics"


@dataclass(frozen=True, slots=True)
class EvalLine(_Line):
    """A validation after `step` steps: mean token loss over `samples` samples, the same every time.

    Of an external program, what is not known is None.
    """

    time: float
    step: int
    loss: float
    samples: int | None
    seconds: float | None

    @classmethod
    def kind(cls) -> str:
        """Return the mark of a validation's line."""
        return "eval"


@dataclass(frozen=True, slots=True)
class Event(_Line):
    """Something that happened once: a stage reached, a checkpoint written, a signal received."""

    time: float
    source: str
    name: str
    message: str
    data: dict[str, Any]

    @classmethod
    def kind(cls) -> str:
        """Return the mark of an event."""
        return "event"


@dataclass(frozen=True, slots=True)
class WorldReport(_Line):
    """Who a rank is and where it runs, written before the trainer starts.

    `pid` is the rank's wrapper, `trainer_pid` the training process; start times are those of
    /proc/PID/stat (clock ticks since boot), so that a reused id is never mistaken for the rank. They name
    processes where `machine` (dsforge.base.processes.machine) is the same.
    """

    time: float
    rank: int
    local_rank: int
    world_size: int
    host: str
    node: int
    pid: int
    pid_start: int
    trainer_pid: int
    trainer_pid_start: int
    machine: str = ""

    @classmethod
    def kind(cls) -> str:
        """Return the mark of a world report."""
        return "world"


@dataclass(frozen=True, slots=True)
class Heartbeat(_Line):
    """A rank lives; or is `gone`, says its node's guard, and left no exit record. When it was seen.

    `oom_killed`: the kernel has ended a process around it for want of memory.
    """

    time: float
    node: int
    rank: int
    gone: bool = False
    oom_killed: bool = False

    @classmethod
    def kind(cls) -> str:
        """Return the mark of a heartbeat."""
        return "heartbeat"


@dataclass(frozen=True, slots=True)
class StackSample(_Line):
    """Where a rank's trainer is, looked at for the `request`th time that the supervisor asked.

    `frames`: those of its main thread, the innermost first; none where nothing tells. `tool`: what told them.
    `state` and `channel`: its state in /proc/PID/stat, and the kernel's function that it sleeps in.
    `cpu_seconds`: what it and all that it started have computed so far. `is_last`: the second of two looks.
    """

    time: float
    node: int
    rank: int
    request: int
    is_last: bool
    tool: str
    state: str
    channel: str
    cpu_seconds: float
    frames: tuple[Frame, ...]

    @classmethod
    def kind(cls) -> str:
        """Return the mark of a stack sample."""
        return "stack"


@dataclass(frozen=True, slots=True)
class HostEnd(_Line):
    """The guard of a node has ended what was left of the attempt there; `left`: what it could not end."""

    time: float
    node: int
    left: int

    @classmethod
    def kind(cls) -> str:
        """Return the mark of a host's end."""
        return "host_end"


@dataclass(frozen=True, slots=True)
class ExitRecord(_Line):
    """How a rank ended. Success of a run is one of these with code 0 from every planned rank.

    `cause`: ok, exception, signal, parent_died, lease_lost, world_mismatch, stopped.
    `stopped` means that somebody asked for the end, of this rank or of one that the trainer goes along with.
    `failed_at` is when the rank's last traceback or refusal appeared, or the request to stop: what came first
    is told from it, since the end of a process comes only after its clean-up. None where a supervisor ended
    the rank.
    `oom_killed`: while it ran, the kernel ended a process around it for want of memory.
    """

    time: float
    rank: int
    code: int
    cause: str
    signal: int | None = None
    message: str | None = None
    tail: tuple[str, ...] = ()
    failed_at: float | None = None
    oom_killed: bool = False

    @property
    def stopped_on_request(self) -> bool:
        """Tell whether the rank ended because somebody asked for it, and not along with another's failure."""
        return self.cause == "stopped" and self.failed_at is not None

    @classmethod
    def kind(cls) -> str:
        """Return the mark of an exit record."""
        return "exit"


def read_lines(
    path: Path, offset: int = 0, *, kind: str | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (offset after the line, parsed line) of whole lines, of one kind if wanted; half a line waits.

    None of a stream that is not there; OSError for what is no stream.
    """
    mark = f'"{kind}"'.encode() if kind is not None else b""
    try:
        opened = open_own(path)
    except FileNotFoundError:
        return
    with opened as stream:
        stream.seek(offset)
        for raw in stream:
            if not raw.endswith(b"\n"):
                return
            offset += len(raw)
            if mark not in raw:
                continue  # most lines of a stream are of another kind
            try:
                parsed = loads(raw)
            except ValueError:
                continue  # a line torn by a crash: the stream goes on after it
            if isinstance(parsed, dict):
                yield offset, parsed


Line = MetricsLine | EvalLine | Event | WorldReport | Heartbeat | StackSample | HostEnd | ExitRecord

_TYPES: dict[str, type[Line]] = {
    line.kind(): line
    for line in (MetricsLine, EvalLine, Event, WorldReport, Heartbeat, StackSample, HostEnd, ExitRecord)
}


def parse_line(data: dict[str, Any]) -> Line | None:
    """Return the typed line of a parsed one, or None when it is of another kind or lacks a field."""
    line_type = _TYPES.get(str(data.get("kind")))
    if line_type is None:
        return None
    try:
        return line_type.from_dict(data)
    except TypeError:
        return None
