"""GPT-NeoX configurations: several YAML files as the one mapping that the program makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dsforge.base.errors import Finding, Place, Severity
from dsforge.catalog.engines.deepspeed import known_keys
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.catalog.engines.neox import neox_keys
from dsforge.foreign.deepspeed.check import check_deepspeed
from dsforge.foreign.findings import is_number, nearest, shown
from dsforge.foreign.programs.said import Said
from dsforge.recipe.document import parse

_NOT_READ = "DSF610"


@dataclass(slots=True)
class Configuration:
    """Values by key, dashes as underscores at the top; places by dotted key; keys of more than one file."""

    data: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    twice: list[tuple[str, Place, Place]] = field(default_factory=list)

    def place(self, key: str) -> Place:
        """Return where a key, or what encloses it, stands."""
        parts = key.split(".")
        for length in range(len(parts), 0, -1):
            if (found := self.places.get(".".join(parts[:length]))) is not None:
                return found
        return self.places[""]

    def whole(self, key: str) -> int | None:
        """Return a whole number of the top, None for anything else."""
        value = self.data.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def degrees(self) -> int:
        """Return the ranks of a replica; 0 stages are the program's word for one."""
        stages, shards = self.whole("pipe_parallel_size"), self.whole("model_parallel_size")
        return max(1, stages or 1) * max(1, shards or 1)

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """Yield (dotted key, value) of everything but mappings."""
        yield from _leaves(self.data, "")


def _leaves(data: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def read_neox(texts: Sequence[tuple[str, str]]) -> Configuration:
    """Return files (text, name) as one configuration; DsforgeError DSF002, DSF003 for what is no YAML."""
    out = Configuration()
    for text, file in texts:
        document = parse(text.removeprefix("\ufeff"), file)
        out.places.setdefault("", Place(file, 1, 1))
        for key, value in document.data.items():
            name = key.replace("-", "_")
            place = document.place((key,))
            if name in out.data:
                out.twice.append((name, out.places[name], place))
                continue
            out.data[name] = value
            for path, where in document.places.items():
                if path and path[0] == key and all(isinstance(part, str) for part in path):
                    out.places[".".join([name, *map(str, path[1:])])] = where
    return out


def said_by(configuration: Configuration) -> dict[str, Said]:
    """Return what is said by the option names of the flavour's rows, defaults included."""
    defaults = {"zero_optimization.stage": 0, "optimizer.params.eps": 1e-8, "optimizer.type": "Adam"}
    known = neox_keys()
    said = {
        row.option: Said(row.option, defaults.get(row.option, known.get(row.option)))
        for row in flavour_of("gpt-neox").rows
    }
    said |= {key: Said(key, default) for key, default in known.items() if key not in said}
    for key, value in configuration.leaves():
        if not _fits(key, value):
            continue  # told by the check
        said[key] = Said(key, value, configuration.place(key))
    return said


def check_neox(configuration: Configuration, replicas: int | None) -> list[Finding]:
    """Return the findings of a configuration, errors first."""
    found = [
        *_twice(configuration),
        *_keys(configuration),
        *_types(configuration),
        *_sense(configuration),
        *_deepspeed(configuration, replicas),
    ]
    order = list(Severity)
    return sorted(found, key=lambda one: order.index(one.severity))


def _twice(configuration: Configuration) -> Iterator[Finding]:
    for key, first, again in configuration.twice:
        message = f"key `{key}` stands in {first} too: the program refuses the files together"
        yield Finding("DSF604", Severity.ERROR, message, key, again, "keep one of the two")


def _keys(configuration: Configuration) -> Iterator[Finding]:
    known = neox_keys()
    for key in configuration.data:
        if key not in known:
            near = nearest(key, known)
            hint = f"did you mean `{near}`?" if near else "remove it, or see the program's own list of keys"
            message = f"`{key}` is none of the program's keys: it refuses the file"
            yield Finding("DSF611", Severity.ERROR, message, key, configuration.place(key), hint)


_WHOLE = (
    *("pipe_parallel_size", "model_parallel_size", "num_layers", "hidden_size", "num_attention_heads"),
    *("num_kv_heads", "seq_length", "max_position_embeddings", "train_iters", "lr_decay_iters", "eval_iters"),
    *("eval_interval", "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
    *("checkpoint_factor", "intermediate_size", "seed", "num_workers", "global_num_gpus"),
    *("num_nodes", "num_gpus", "checkpoint_num_layers", "keep_last_n_checkpoints"),
)
_NUMBERS = (
    *("min_lr", "warmup", "weight_decay", "hidden_dropout", "attention_dropout", "gradient_clipping"),
    *("layernorm_epsilon", "rms_norm_epsilon", "init_method_std", "rotary_pct"),
)


def _fits(key: str, value: Any) -> bool:
    if value is None or key not in (*_WHOLE, *_NUMBERS):
        return True
    return is_number(value) and (key in _NUMBERS or isinstance(value, int))


def _types(configuration: Configuration) -> Iterator[Finding]:
    for key, value in configuration.data.items():
        if not _fits(key, value):
            kind = "a whole number" if key in _WHOLE else "a number"
            message = f"`{key}` is {shown(value)}, the program computes with {kind}"
            yield Finding("DSF614", Severity.ERROR, message, key, configuration.place(key), f"write {kind}")


def _sense(configuration: Configuration) -> Iterator[Finding]:
    data = configuration.data
    hidden, heads = configuration.whole("hidden_size"), configuration.whole("num_attention_heads")
    if hidden is not None and heads is not None and heads > 0 and hidden % heads:
        near = round(hidden / heads) * heads
        rest = f"hidden_size {hidden} % num_attention_heads {heads} = {hidden % heads}"
        message = f"{rest}: the program ends in an assert without a message"
        place = configuration.place("hidden_size")
        yield Finding("DSF698", Severity.ERROR, message, "hidden_size", place, f"hidden_size {near}")
    precision = data.get("precision")
    for name, word in (("fp16", "fp16"), ("bf16", "bfloat16")):
        block = data.get(name)
        is_on = isinstance(block, dict) and block.get("enabled") is True
        if is_on and precision is not None and precision != word:
            message = f"`{name}.enabled` is true and `precision` is {shown(precision)}"
            place = configuration.place(f"{name}.enabled")
            yield Finding(
                "DSF697", Severity.ERROR, message, f"{name}.enabled", place, "say one thing in both"
            )
        if isinstance(block, dict) and "type" in block:
            message = f"`{name}.type` is a key of an old fork: DeepSpeed has none of this name"
            place = configuration.place(f"{name}.type")
            yield Finding("DSF612", Severity.ERROR, message, f"{name}.type", place, "set `precision` instead")
    world, product = configuration.whole("global_num_gpus"), configuration.degrees()
    if world is not None and world % product:
        message = f"{world} GPUs are no whole number of replicas of {product}"
        place = configuration.place("global_num_gpus")
        hint = "degrees whose product divides the GPUs"
        yield Finding("DSF698", Severity.ERROR, message, "global_num_gpus", place, hint)


_BLOCKS = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "optimizer"),
    *("scheduler", "zero_optimization", "gradient_clipping", "activation_checkpointing", "flops_profiler"),
    *("comms_logger", "data_types", "fp16", "bf16", "wall_clock_breakdown", "steps_per_print"),
)


def _deepspeed(configuration: Configuration, replicas: int | None) -> Iterator[Finding]:
    """Yield what DeepSpeed makes of the keys that the program hands on to it."""
    data = configuration.data
    block = {key: data[key] for key in _BLOCKS if key in data}
    block.setdefault("gradient_clipping", neox_keys()["gradient_clipping"])
    for name in ("fp16", "bf16"):
        if isinstance(block.get(name), dict):
            block[name] = {key: value for key, value in block[name].items() if key != "type"}
    if not block:
        return
    text = json.dumps(block, default=str)
    for one in check_deepspeed(text, "", known_keys(), replicas=replicas):
        if one.key is not None and one.code not in (_NOT_READ, "DSF621", "DSF622"):
            yield replace(one, place=configuration.place(one.key))


def replicas_of(configuration: Configuration) -> int | None:
    """Return the data-parallel size where the files name the number of GPUs."""
    world, product = configuration.whole("global_num_gpus"), configuration.degrees()
    return world // product if world and world % product == 0 else None
