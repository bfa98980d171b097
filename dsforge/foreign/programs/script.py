"""A launch script of Megatron as a whole: its command line, the JSON it names, its hosts and variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dsforge.base.errors import DsforgeError, Finding, Place
from dsforge.base.text import SECRET_NAME
from dsforge.catalog.engines.deepspeed import DeepSpeedKeys, known_keys
from dsforge.foreign.bash.job import carry_job
from dsforge.foreign.bash.launch import Launch, find_launch
from dsforge.foreign.bash.script import Script, read_script
from dsforge.foreign.bash.text import Lines, Text
from dsforge.foreign.deepspeed.carry import carry_deepspeed
from dsforge.foreign.imports import Carried, Import, Left
from dsforge.foreign.programs.arguments import MEGATRON, Arguments, flavour_of_launch, read_arguments
from dsforge.foreign.programs.carry import MegatronCarrying, carry_megatron

_THEIRS = {"MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "PATH", "WORLD_SIZE", "RANK", "LOCAL_RANK"}
_PREFIXES = ("SLURM_", "SBATCH_", "DSFORGE_")
_RUN_TIME = ("a variable that the script does not set", "known only where the script runs")
"""Reasons for open words, which count where an option takes them and are told there."""
Beside = Callable[[str], str | None]
"""Reads a file that a script names; None where there is none."""


@dataclass(frozen=True, slots=True)
class JsonConfig:
    """The DeepSpeed JSON of a command line: text, what it is called, and a map of its places."""

    text: str
    file: str
    written: Text | None
    """Where each character of it stands in the script; None for a file of its own."""

    def moved(self, place: Place | None, lines: Lines) -> Place | None:
        """Return a place of the JSON as one of the script that writes it."""
        if self.written is None or place is None or place.line is None:
            return place
        before = self.text.split("\n")
        offset = sum(len(line) + 1 for line in before[: place.line - 1]) + (place.column or 1) - 1
        chars = self.written.chars
        return lines.place(chars[min(offset, len(chars) - 1)].at) if chars else place

    def moved_finding(self, one: Finding, lines: Lines) -> Finding:
        """Return a finding of the JSON at its place in the script."""
        return replace(one, place=self.moved(one.place, lines))


@dataclass(frozen=True, slots=True)
class MegatronScript:
    """A script read once; `json` is None where the program is told of none, or it cannot be read."""

    script: Script
    launch: Launch
    arguments: Arguments
    json: JsonConfig | None


def read_megatron(text: str, file: str, beside: Beside, flavour: str | None) -> MegatronScript:
    """Return a script's launch; DsforgeError DSF692 no script, DSF694 no launch in it."""
    script = read_script(text, file)
    launch = find_launch(script)
    if flavour is not None and flavour not in MEGATRON:
        raise DsforgeError(
            "DSF691",
            f"a script of {flavour} has no options to read",
            Place(file),
            "megatron-deepspeed or megatron-lm",
        )
    arguments = read_arguments(launch, flavour or flavour_of_launch(launch), script.lines)
    return MegatronScript(script, launch, arguments, _json(script, arguments, beside))


def _json(script: Script, arguments: Arguments, beside: Beside) -> JsonConfig | None:
    name = arguments.value("deepspeed_config")
    if name is None:
        return None
    if name in script.files:
        written = script.files[name].for_json()
        return JsonConfig(str(written), script.lines.file, written)
    found = beside(name)
    return JsonConfig(found, name, None) if found is not None else None


def carry_script(
    read: MegatronScript, file: str, given: Mapping[str, Any], replicas: int | None
) -> MegatronCarrying:
    """Return the import of a script: cluster, command line, JSON and variables."""
    carrying = carry_megatron(read.arguments, file, given=given, replicas=replicas)
    out = carrying.out
    out.carried = [*_cluster(read), *_program(read, carrying), *out.carried, *_environment(read, out)]
    job = carry_job(read.script)
    out.carried += job.carried
    out.left += job.left
    for text, at, why in read.script.unread:
        if why not in _RUN_TIME:
            out.left.append(Left(text, "", why, read.script.lines.place(at)))
    config = carrying.arguments.said.get("deepspeed_config")
    if config is not None and config.given:
        carrying.used |= {"--deepspeed", config.option}
        if read.json is None:
            why = "cannot be read here: it is not written by the script, and no such file is there"
            carrying.leave(config, why)
        else:
            _join(out, read.json, imported_json(read.json, given, replicas, known_keys()), read.script.lines)
    return carrying


def imported_json(
    config: JsonConfig, given: Mapping[str, Any], replicas: int | None, keys: DeepSpeedKeys
) -> Import:
    """Return what the JSON alone says; DsforgeError DSF602 when it is none."""
    return carry_deepspeed(config.text, config.file, keys, given=given, replicas=replicas)


def _join(out: Import, config: JsonConfig, more: Import, lines: Lines) -> None:
    """Add what only the JSON says: offloading, monitors."""
    for one in more.carried:
        if one.key.startswith(("offload.", "monitor.")):
            out.carried.append(replace(one, place=config.moved(one.place, lines)))
    out.left += [
        replace(one, place=config.moved(one.place, lines)) for one in more.left if one.place is not None
    ]


def _cluster(read: MegatronScript) -> list[Carried]:
    launch, lines = read.launch, read.script.lines
    hosts, ranks, world = (launch.number(name) for name in ("hosts", "ranks", "world"))
    places = {name: lines.place(text.at) for name, text in launch.told.items()}
    out = []
    if ranks is None and world is not None and world % (hosts or 1) == 0:
        ranks = world // (hosts or 1)
        places["ranks"] = places["world"]
    if launch.started_by in ("torchrun", "python") and "ranks" not in launch.told:
        ranks = ranks or 1
    if hosts is not None or (
        "hosts" not in launch.told and "hostfile" not in launch.told and ranks is not None
    ):
        out.append(Carried("cluster.nodes", hosts or 1, "hosts of the launch", places.get("hosts")))
    if ranks is not None:
        out.append(Carried("cluster.gpus_per_node", ranks, "ranks of a host", places.get("ranks")))
    hostfile = launch.told.get("hostfile")
    if hostfile is not None and not hostfile.is_open:
        out.append(Carried("cluster.hostfile", str(hostfile), "--hostfile", places.get("hostfile")))
    return out


def _program(read: MegatronScript, carrying: MegatronCarrying) -> list[Carried]:
    """Return where the program is: the folder of the file that is started, and its name if not the usual."""
    program, lines = read.launch.program, read.script.lines
    place = lines.place(program.at)
    if program.is_open:
        if "external.path" not in carrying.given:
            why = f"`{program}` is known only where the script runs"
            carrying.need("external.path", None, why)
        return []
    folder, _, name = str(program).rpartition("/")
    out = [Carried("external.path", folder or ".", "the folder of the program", place)]
    if name != carrying.flavour.entry:
        out.append(Carried("external.entry", name, "the program's name", place))
    return out


def _environment(read: MegatronScript, out: Import) -> list[Carried]:
    carried = []
    for name, value in sorted(read.launch.environment.items()):
        place = read.script.lines.place(value.at)
        if SECRET_NAME.search(name):
            out.left.append(Left(name, "...", "a secret: name it in launch.env_from", place))
        elif name in _THEIRS or name.startswith(_PREFIXES):
            out.left.append(Left(name, "", "the launcher's own variable", place))
        elif value.is_open or "\n" in str(value):
            out.left.append(Left(name, str(value), "known only where the script runs", place))
        else:
            carried.append(Carried(f"launch.env.{name}", str(value), f"export {name}", place))
    return carried
