"""What a launching host asks a host before or after a run, and its answers: lines of JSON over ssh."""

from __future__ import annotations

from dataclasses import dataclass

from dsforge.base.processes import ProcessId

MARK = "dsforge-probe "
"""Before every answer: a login shell may print words of its own."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a host is asked about itself.

    `environ`: what ranks have over the host's own variables. `gpus`: whether the plan runs on them. `master`:
    the name by which ranks reach the first host. `folders`: where the run writes, each with a file in it that
    the launching host has made. `files`: what ranks read. `ops`: folder of compiled kernels. `interface`: how
    each finds its own network interface, where the recipe has it look for one. `disk`: the folder on each
    host's own disk that states are offloaded to.
    """

    environ: dict[str, str]
    gpus: bool
    master: str
    folders: dict[str, str]
    files: tuple[str, ...]
    ops: str
    interface: str | None = None
    disk: str | None = None


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface that is up, with its addresses but link-local ones."""

    name: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Announced:
    """The address that a host's ranks will give to the others.

    `variable`: which one chooses the interface, with its `value` where it is set. `missing`: interfaces that
    it names and that are not there, or have no address.
    """

    variable: str
    value: str | None
    address: str | None
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as the driver tells it. `errors`: uncorrected memory errors since the driver was loaded."""

    name: str
    driver: str
    errors: int
    processes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of the run on a host: the token's text if it is read there, and why it cannot be written."""

    path: str
    token: str | None
    refused: str | None
    free_bytes: int
    free_files: int | None


@dataclass(frozen=True, slots=True)
class FileMark:
    """A file that ranks read: its size and a hash of its beginning and end; None where it cannot be read."""

    path: str
    size_bytes: int | None
    digest: str | None


@dataclass(frozen=True, slots=True)
class Leftover:
    """Processes of an attempt; `is_dead`: its supervisor is gone, as far as this host can tell."""

    attempt: str
    lease: str
    pids: tuple[int, ...]
    is_dead: bool


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a host says of itself. Bytes where the name says so; `None` for what it cannot tell.

    `disk_refused`: why nothing can be written where the question has states offloaded to.
    """

    host: str
    machine: str
    versions: dict[str, str]
    gpus: tuple[Gpu, ...]
    gpu_problem: str | None
    xids: tuple[str, ...]
    memory_bytes: int
    available_bytes: int
    shm_bytes: int
    open_files: int
    locked_memory_bytes: int | None
    has_fabric: bool
    folders: tuple[Folder, ...]
    files: tuple[FileMark, ...]
    interfaces: tuple[Interface, ...]
    announced: Announced
    master_addresses: tuple[str, ...]
    route: str | None
    leftovers: tuple[Leftover, ...]
    compilers: dict[str, bool]
    built_ops: tuple[str, ...]
    disk_refused: str | None = None


@dataclass(frozen=True, slots=True)
class Listen:
    """Asks a host to listen, for as long as it is talked to, and to answer connections with `word`.

    At its announced `address` at any port, and, where ranks will meet, at the first free one of `ports`.
    """

    address: str | None
    ports: tuple[int, ...]
    word: str


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a host listens: `port` of its own address, `meeting_port`; None with why in `refused`."""

    port: int | None
    meeting_port: int | None
    refused: str | None


@dataclass(frozen=True, slots=True)
class Target:
    """An address and port of another host, and the word that only the right one answers with."""

    address: str
    port: int
    word: str


@dataclass(frozen=True, slots=True)
class Reach:
    """Asks a host to connect to others within `seconds`."""

    targets: tuple[Target, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Reached:
    """Why each target of a `Reach` could not be reached, None where it was."""

    faults: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Clock:
    """Asks for the time."""


@dataclass(frozen=True, slots=True)
class Time:
    """A host's clock, in seconds since the epoch."""

    time: float


@dataclass(frozen=True, slots=True)
class Locks:
    """Asks for the locks of builds in a folder of compiled kernels, of which `kernels` are known."""

    folder: str
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Locked:
    """The locks that a process of the host has open, and those that none has."""

    held: tuple[str, ...]
    stale: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Build:
    """Asks a host to remove locks and to compile, by their folders in `folder`, what is not built there yet.

    `builders`: `MODULE:CLASS` by kernel. `environ`: over the host's own. `seconds`: for each kernel.
    """

    folder: str
    builders: dict[str, str]
    stale: tuple[str, ...]
    environ: dict[str, str]
    seconds: float


@dataclass(frozen=True, slots=True)
class Built:
    """The locks that were removed, the kernels that were compiled, and by kernel why one could not be.

    `problem`: why nothing was done.
    """

    removed: tuple[str, ...]
    built: tuple[str, ...]
    failed: dict[str, str]
    problem: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class End:
    """End what is left of a run in its folder. `wrappers`: its ranks' own, which are told first."""

    run_id: str
    folder: str
    wrappers: tuple[ProcessId, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """How many processes of a run there were, and how many could not be ended."""

    found: int
    left: int


ASKS = {
    "facts": Question,
    "listen": Listen,
    "reach": Reach,
    "clock": Clock,
    "locks": Locks,
    "build": Build,
    "end": End,
}
ANSWERS = {
    "facts": HostFacts,
    "listen": Listening,
    "reach": Reached,
    "clock": Time,
    "locks": Locked,
    "build": Built,
    "end": Ended,
}
