"""What a Megatron program would really do with a launch script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsforge.base.errors import DsforgeError, Finding, Place, Severity
from dsforge.catalog.engines.deepspeed import DeepSpeedKeys
from dsforge.catalog.engines.scripts import counts, traps
from dsforge.external.expressions import evaluate, names
from dsforge.foreign.deepspeed.check import check_deepspeed
from dsforge.foreign.findings import shown
from dsforge.foreign.imports import Carried
from dsforge.foreign.programs.carry import MegatronCarrying, carry_megatron
from dsforge.foreign.programs.script import JsonConfig, MegatronScript, imported_json

_TWICE = "repeats"
_ASKED_FOR = "DSF660"


def check_script(read: MegatronScript, replicas: int | None, keys: DeepSpeedKeys) -> list[Finding]:
    """Return the findings of a script, errors first; `keys` are those of the DeepSpeed that it is for."""
    found = [*_astray(read), *_options(read), *_counts(read), *_traps(read), *_unread(read)]
    if read.json is not None:
        found += _config(read, read.json, replicas, keys)
    order = list(Severity)
    return sorted(found, key=lambda one: order.index(one.severity))


def replicas_of(read: MegatronScript) -> int | None:
    """Return the data-parallel size that the launch and the degrees come to."""
    values = _values(read)
    return values["dp"] or None


def _values(read: MegatronScript) -> dict[str, Any]:
    """Return what is known by destination; what is open is None."""
    arguments, launch = read.arguments, read.launch
    values = {dest: None if one.is_open else one.value for dest, one in arguments.said.items()}
    hosts = launch.number("hosts") if "hosts" in launch.told else 1
    ranks = launch.number("ranks")
    world = hosts * ranks if hosts and ranks else launch.number("world")
    parallel = [
        values.get(f"{name}_parallel_size") or 1
        for name in ("tensor_model", "pipeline_model", "ds_sequence", "context")
    ]
    product = 1
    for degree in parallel:
        product *= degree
    connections = launch.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    return {
        **values,
        "world": world,
        "dp": world // product if world and world % product == 0 else None,
        "head_width": _share(values.get("hidden_size"), values.get("num_attention_heads")),
        "connections": str(connections) if connections is not None else "",
    }


def _share(whole: Any, parts: Any) -> int | None:
    return whole // parts if isinstance(whole, int) and isinstance(parts, int) and parts > 0 else None


def _options(read: MegatronScript) -> Iterator[Finding]:
    for fault, place in read.arguments.unknown:
        yield Finding("DSF695", Severity.ERROR, fault.message, None, place, fault.hint)
    for fault, place in read.arguments.faults:
        weight = Severity.WARNING if _TWICE in fault.message else Severity.ERROR
        yield Finding("DSF696", weight, fault.message, None, place, fault.hint)


def _traps(read: MegatronScript) -> Iterator[Finding]:
    values, arguments = _values(read), read.arguments
    for trap in traps(arguments.flavour):
        known = all(name in values for name in names(trap.when))
        if not known or not _holds(trap.when, values):
            continue
        option = arguments.table.get(trap.option)
        said = arguments.said[option.dest] if option is not None else None
        place = (said.place if said else None) or read.script.lines.place(read.launch.program.at)
        message = f"{arguments.flavour}: {trap.why.format_map(values)}"
        yield Finding("DSF698", trap.severity, message, trap.option, place, trap.hint)


def _holds(when: str, values: dict[str, Any]) -> bool:
    try:
        return bool(evaluate(when, values))
    except (TypeError, ZeroDivisionError):  # a number in it is not known, or told as no count
        return False


def _astray(read: MegatronScript) -> Iterator[Finding]:
    for word in read.script.astray:
        message = f"`{word}` begins a command of its own: the command line above ended before it"
        hint = "end the line above with a backslash and nothing behind it, no blank and no comment"
        yield Finding("DSF698", Severity.ERROR, message, None, read.script.lines.place(word.at), hint)


def _counts(read: MegatronScript) -> Iterator[Finding]:
    for name in sorted(counts(read.arguments.flavour)):
        option = read.arguments.table.get(name)
        said = read.arguments.said[option.dest] if option is not None else None
        if said is None or said.is_open or not isinstance(said.value, int) or said.value > 0:
            continue
        message = f"`{name} {said.value}`: the parser takes it, and the program fails or trains nothing"
        yield Finding("DSF698", Severity.ERROR, message, name, said.place, "a number above 0")


def _unread(read: MegatronScript) -> Iterator[Finding]:
    lines = read.script.lines
    for text, at, why in read.script.unread:
        hint = "what hangs on it is not judged"
        yield Finding("DSF699", Severity.NOTE, f"`{text}`: {why}", None, lines.place(at), hint)
    config = read.arguments.said.get("deepspeed_config")
    if config is not None and config.given and read.json is None:
        message = f"{shown(config.value)} is not written by the script, and no such file is there"
        yield Finding("DSF699", Severity.NOTE, message, None, config.place, "check that file too")


def _config(
    read: MegatronScript, config: JsonConfig, replicas: int | None, keys: DeepSpeedKeys
) -> Iterator[Finding]:
    lines = read.script.lines
    try:
        found = check_deepspeed(config.text, config.file, keys, replicas=replicas)
        said = imported_json(config, {}, replicas, keys)
    except DsforgeError as fault:
        place = config.moved(fault.place, lines)
        yield Finding(fault.code, Severity.ERROR, fault.message, None, place, fault.hint)
        return
    asked = read.arguments.value("deepspeed_activation_checkpointing")
    for one in found:
        if not (one.code == _ASKED_FOR and asked):
            yield config.moved_finding(one, lines)
    command = carry_megatron(read.arguments, lines.file, given={"model": "as it is"}, replicas=replicas)
    for row in said.carried:
        yield from _against(read, config, row, command)


_COMPARED = {
    "batch.global": ("--global-batch-size", "global_batch_size"),
    "batch.micro": ("--micro-batch-size", "micro_batch_size"),
    "parallel.zero": ("--zero-stage", "zero_stage"),
    "train.precision": ("--bf16/--fp16", ""),
    "optimizer.grad_clip": ("--clip-grad", "clip_grad"),
    "optimizer.lr": ("--lr", "lr"),
    "optimizer.weight_decay": ("--weight-decay", "weight_decay"),
    "optimizer.eps": ("--adam-eps", "adam_eps"),
}


def _against(
    read: MegatronScript, config: JsonConfig, one: Carried, command: MegatronCarrying
) -> Iterator[Finding]:
    """Yield a finding where JSON and command line say different things of one key."""
    if one.key not in _COMPARED:
        return
    option, dest = _COMPARED[one.key]
    said = read.arguments.said.get(dest)
    if one.key == "train.precision":
        found = command.found.get(one.key)
        value, said = (found.value, found.said) if found else ("fp32", None)
    elif said is None or said.is_open:
        return
    else:
        value = said.value
    from_default = one.place is None and one.key not in (
        "parallel.zero",
        "train.precision",
        "optimizer.grad_clip",
    )
    if value is None or value == one.value or from_default or not isinstance(one.value, int | float | str):
        return
    by = f"{option}" if said is not None and said.given else f"{option}'s default"
    moved = config.moved(one.place, read.script.lines)
    place = moved or (said.place if said else None) or Place(config.file)
    source = f"`{one.source}`" if one.place else one.source
    message = (
        f"`{one.key}` is {shown(one.value)} in the DeepSpeed JSON ({source}) and {shown(value)} by {by}"
        + (f" in line {said.place.line}" if said is not None and said.place is not None else "")
    )
    yield Finding("DSF697", Severity.ERROR, message, one.key, place, "say one thing in both")
