"""What GPT-NeoX, and DeepSpeed after it, would do with a configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dsforge.base.errors import Finding, Severity
from dsforge.catalog.engines.deepspeed import known_keys
from dsforge.catalog.engines.neox import neox_keys
from dsforge.foreign.deepspeed.check import check_deepspeed
from dsforge.foreign.findings import nearest, shown
from dsforge.foreign.programs.neox import Configuration
from dsforge.foreign.programs.neox_sense import sense

_NOT_READ = "DSF610"
_CASELESS = ("tokenizer_type",)
"""Keys whose spelling the program's code, too, compares without case."""


def check_neox(configuration: Configuration, replicas: int | None) -> list[Finding]:
    """Return the findings of a configuration, errors first."""
    found = [
        *_twice(configuration),
        *_keys(configuration),
        *_types(configuration),
        *sense(configuration, replicas),
        *_deepspeed(configuration, replicas),
    ]
    order = list(Severity)
    return sorted(found, key=lambda one: order.index(one.severity))


def _twice(configuration: Configuration) -> Iterator[Finding]:
    for key, first, again in configuration.twice:
        message = f"key `{key}` stands in {first} too: the program refuses the files together"
        yield Finding("DSF604", Severity.ERROR, message, key, again, "keep one of the two")
    for key, first, again in configuration.overruled:
        message = f"key `{key}` stands in {first} too: written with dashes, this one counts without a word"
        yield Finding("DSF604", Severity.ERROR, message, key, again, "keep one of the two")
    for file in configuration.namesakes:
        place = replace(configuration.places[""], file=file)
        message = "another file has the same name: the program refuses the two together"
        yield Finding("DSF604", Severity.ERROR, message, None, place, "rename one of them")


def _keys(configuration: Configuration) -> Iterator[Finding]:
    known = {key: row for key, row in neox_keys().items() if not row.is_dropped}
    for key in configuration.data:
        place, gone = configuration.place(key), neox_keys().get(key)
        if gone is not None and gone.is_dropped:
            hint = f"see `{gone.now}`, which says it today" if gone.now else "remove it"
            message = f"`{key}` is a key of earlier revisions: the program refuses the file"
            yield Finding("DSF612", Severity.ERROR, message, key, place, hint)
        elif key not in known:
            near = nearest(key, known)
            hint = f"did you mean `{near}`?" if near else "remove it, or see the program's own list of keys"
            message = f"`{key}` is none of the program's keys: it refuses the file"
            yield Finding("DSF611", Severity.ERROR, message, key, place, hint)
        elif known[key].derived and configuration.data[key] is not None:
            message = f"`{key}` is what the program works out itself: what stands here is overwritten"
            yield Finding(_NOT_READ, Severity.WARNING, message, key, place, "remove it")


def _types(configuration: Configuration) -> Iterator[Finding]:
    for key, raw in configuration.texts.items():
        wants = "which wants a dot and a signed exponent"
        message = f"`{key}` is the text {raw} to the program's YAML reader, {wants}"
        hint = f"write {_dotted(raw)}"
        yield Finding("DSF608", Severity.ERROR, message, key, configuration.place(key), hint)
    for key, value in configuration.data.items():
        row = neox_keys().get(key)
        if row is None or row.is_dropped or key == "precision":
            continue
        place = configuration.place(key)
        if not row.takes(value) and not (value == "auto" and configuration.data.get("autotuning")):
            code = "DSF615" if row.choices and isinstance(value, str) else "DSF614"
            near = nearest(value, row.choices) if isinstance(value, str) and row.choices else None
            hint = f"did you mean `{near}`?" if near else f"write {row.wanted()}"
            message = f"`{key}` is {shown(value)}, the program takes {row.wanted()}"
            yield Finding(code, Severity.ERROR, message, key, place, hint)
        elif row.choices and value is not None and value not in row.choices and key not in _CASELESS:
            word = next(one for one in row.choices if one.lower() == value.lower())
            message = f"`{key}` is {shown(value)}: the program's check passes it, its code does not know it"
            yield Finding("DSF698", Severity.ERROR, message, key, place, f"write {word}")


def _dotted(raw: str) -> str:
    """Return a number as PyYAML reads it: 3e-4 is 3.0e-4."""
    mantissa, _, exponent = raw.lower().partition("e")
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    sign = "" if exponent.startswith(("+", "-")) else "+"
    return f"{mantissa}e{sign}{exponent}" if exponent else mantissa


_BLOCKS = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "optimizer"),
    *("scheduler", "zero_optimization", "gradient_clipping", "activation_checkpointing", "flops_profiler"),
    *("comms_logger", "data_types", "fp16", "bf16", "wall_clock_breakdown", "steps_per_print"),
)


def _deepspeed(configuration: Configuration, replicas: int | None) -> Iterator[Finding]:
    """Yield what DeepSpeed makes of the keys that the program hands on to it."""
    data = configuration.data
    block: dict[str, Any] = {
        key: data[key] for key in _BLOCKS if key in data and neox_keys()[key].takes(data[key])
    }
    block.setdefault("gradient_clipping", neox_keys()["gradient_clipping"].default)
    for name in ("fp16", "bf16"):
        if isinstance(block.get(name), dict):
            block[name] = {key: value for key, value in block[name].items() if key != "type"}
    text = json.dumps(block, default=str)
    for one in check_deepspeed(text, "", known_keys(), replicas=replicas):
        if one.key is not None and one.code not in (_NOT_READ, "DSF621", "DSF622"):
            yield replace(one, place=configuration.place(one.key))
