"""The command of a script that starts the training, on how many hosts, with how many ranks on each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dsforge.base.errors import DsforgeError, Place
from dsforge.foreign.bash.script import Command, Script
from dsforge.foreign.bash.text import Text

_RANKS = ("--nproc_per_node", "--nproc-per-node", "--num_gpus", "--ntasks-per-node", "--gpus-per-node")
_HOSTS = ("--nnodes", "--num_nodes", "--nodes", "--num_machines")
_WORLD = ("--num_processes", "--ntasks")
_SHORT = {"-N": "--nodes", "-n": "--ntasks"}
_HOSTFILES = ("--hostfile", "-H")
_PROGRAM = re.compile(r"[^=]*\.py")
_WRAPPERS = (
    *("apptainer", "docker", "podman", "singularity", "command", "env", "exec", "nohup", "setsid", "sudo"),
    *("ionice", "nice", "numactl", "nsys", "stdbuf", "taskset", "time", "timeout"),
)
"""Commands that run the command behind their own options."""
_STARTERS = re.compile(r"(?:.*/)?(?:torchrun|deepspeed|srun|accelerate|mpirun|mpiexec|pdsh|python[\d.]*)$")


@dataclass(frozen=True, slots=True)
class Launch:
    """How a script starts its program; `told` are numbers by what they count: ranks, hosts, world."""

    program: Text
    arguments: tuple[Text, ...]
    started_by: str
    told: Mapping[str, Text] = field(default_factory=dict)
    options: tuple[Text, ...] = ()
    """The launcher's own options."""
    environment: Mapping[str, Text] = field(default_factory=dict)

    def number(self, name: str) -> int | None:
        """Return a number that the launcher is told, where the script says it."""
        text = str(self.told[name]) if name in self.told else ""
        return int(text) if text.isdecimal() and 0 < len(text) < 9 else None


def find_launch(script: Script) -> Launch:
    """Return the last command that starts a Python program through a launcher or python itself.

    DsforgeError DSF694 when there is none, DSF692 when that may be for a statement that is no shell.
    """
    found = [launch for command in script.commands if (launch := _launch(command)) is not None]
    if not found and script.broken_at is not None:
        place = script.lines.place(script.broken_at)
        raise DsforgeError(
            "DSF692", "this is not understood as shell", place, "`bash -n FILE` says what is wrong"
        )
    if not found:
        hint = "it must run a .py file by torchrun, deepspeed, srun, accelerate or python"
        raise DsforgeError("DSF694", "no training is started", Place(script.lines.file), hint)
    # The training is what gets the most arguments: conversions before it and evaluations after it get few.
    best = max(found, key=lambda one: len(one.arguments))
    told = _directives(script.directives)
    told |= {kind: text for kind, text in best.told.items() if kind not in told or not text.is_open}
    environment = {**script.exported, **best.environment}
    return Launch(best.program, best.arguments, best.started_by, told, best.options, environment)


def _launch(command: Command) -> Launch | None:
    words = _without_wrapper(command.words)
    if not words or not _STARTERS.match(str(words[0])):
        return None
    at = next((at for at, word in enumerate(words) if at and _PROGRAM.fullmatch(str(word))), None)
    if at is None:
        return None
    before = words[:at]
    starter = next(
        (
            str(word).rpartition("/")[2]
            for word in reversed(before)
            if _STARTERS.match(str(word)) and "python" not in str(word)
        ),
        "python",
    )
    return Launch(
        words[at], tuple(words[at + 1 :]), starter, dict(_told(before)), tuple(before), command.environment
    )


def _without_wrapper(words: tuple[Text, ...]) -> tuple[Text, ...]:
    """Return a command line from its launcher on, where it stands behind what only runs it."""
    if str(words[0]).rpartition("/")[2] not in _WRAPPERS:
        return words
    starts = (at for at, word in enumerate(words) if _STARTERS.match(str(word)))
    return words[next(starts, len(words)) :]


def _told(words: Sequence[Text]) -> Iterator[tuple[str, Text]]:
    """Yield what a launcher's options count."""
    for at, word in enumerate(words):
        name, equals, _ = str(word).partition("=")
        name = _SHORT.get(name, name)
        if equals:
            value: Text | None = Text(word.chars[len(str(word).partition("=")[0]) + 1 :])
        else:
            value = words[at + 1] if at + 1 < len(words) else None
        if value is None:
            continue
        for kind, names in (
            ("ranks", _RANKS),
            ("hosts", _HOSTS),
            ("world", _WORLD),
            ("hostfile", _HOSTFILES),
        ):
            if name in names:
                yield kind, value


def _directives(lines: Sequence[Text]) -> dict[str, Text]:
    """Return what `#SBATCH` lines ask for: `--gpus-per-node=a100:8` and `--gres=gpu:8` count GPUs."""
    told: dict[str, Text] = {}
    for line in lines:
        words = list(line.quoted(False).words())[1:]
        tasks = dict(_told(words))
        told = {**told, **{kind: _last(value) for kind, value in tasks.items() if kind in ("hosts", "ranks")}}
        for word in words:
            text = str(word)
            if text.startswith("--gres=gpu"):
                told["ranks"] = _last(word)
    return told


def _last(value: Text) -> Text:
    """Return what stands behind the last colon."""
    return Text(value.chars[str(value).rfind(":") + 1 :]) if ":" in str(value) else value
