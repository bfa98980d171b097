"""Values of a GPT-NeoX configuration that do not go together, and those that it changes without a word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsforge.base.errors import Finding, Severity
from dsforge.catalog.engines.neox import attention_kinds, neox_keys
from dsforge.catalog.engines.scripts import counts
from dsforge.foreign.findings import is_number, shown
from dsforge.foreign.programs.neox import Configuration

_REQUIRED = ("num_layers", "hidden_size", "num_attention_heads", "max_position_embeddings")


def sense(configuration: Configuration, replicas: int | None) -> Iterator[Finding]:
    """Yield what the program asserts, refuses or ends on, and what it trains otherwise than the file says."""
    for key, message, hint in (
        *_counts(configuration),
        *_model(configuration),
        *_layout(configuration),
        *_batch(configuration, replicas),
        *_precision(configuration.data),
        *_optimizer(configuration.data),
        *_data(configuration.data),
    ):
        yield Finding("DSF698", Severity.ERROR, message, key, configuration.place(key), hint)
    yield from _blocks(configuration)


Fault = tuple[str, str, str]
"""A dotted key, what happens, and what mends it."""


def _counts(configuration: Configuration) -> Iterator[Fault]:
    for key in sorted(counts("gpt-neox")):
        value: Any = configuration.data.get(key)
        if is_number(value) and value < 1:
            message = (
                f"`{key}` {value}: the check of types passes it, and the program fails or trains nothing"
            )
            yield key, message, "a number above 0"


def _model(configuration: Configuration) -> Iterator[Fault]:
    data, whole = configuration.data, configuration.whole
    hidden, heads, shared = whole("hidden_size"), whole("num_attention_heads"), whole("num_kv_heads")
    if hidden is not None and heads is not None and heads > 0 and hidden % heads:
        rest = f"hidden_size {hidden} % num_attention_heads {heads} = {hidden % heads}"
        yield "hidden_size", f"{rest}: the program refuses it", f"hidden_size {round(hidden / heads) * heads}"
    if heads is not None and shared is not None and shared > 0 and heads % shared:
        message = (
            f"num_attention_heads {heads} % num_kv_heads {shared} = {heads % shared}: the program asserts"
        )
        yield "num_kv_heads", message, "a number that divides the heads"
    missing = [key for key in _REQUIRED if data.get(key) is None]
    if "num_layers" in data and "hidden_size" in data and missing:
        yield "num_layers", f"`{missing[0]}` is missing beside it: the program refuses the files", "add it"
    length, positions = whole("seq_length"), whole("max_position_embeddings")
    if length is not None and positions is not None and length > positions:
        message = (
            f"seq_length {length} is more than max_position_embeddings {positions}: the program refuses it"
        )
        yield "seq_length", message, f"max_position_embeddings {length}"
    attention, layers = data.get("attention_config"), whole("num_layers")
    if isinstance(attention, list) and layers is not None:
        kinds = attention_kinds(attention, layers)
        if kinds is None or len(kinds) != layers:
            told = (
                "is no list that the program reads" if kinds is None else "speaks of another number of layers"
            )
            yield (
                "attention_config",
                f"it {told}, and num_layers is {layers}: the program asserts",
                "one for each",
            )
    seed = whole("seed")
    if seed is not None and seed < 1:
        yield "seed", f"seed {seed}: the program takes none below 1", "a seed of 1 or more"


def _layout(configuration: Configuration) -> Iterator[Fault]:
    world, product = configuration.whole("global_num_gpus"), configuration.degrees()
    if world is not None and world % product:
        message = f"{world} GPUs are no whole number of replicas of {product}"
        yield "global_num_gpus", message, "degrees whose product divides the GPUs"
    zero = configuration.data.get("zero_optimization")
    if not isinstance(zero, dict):
        return
    stage = zero.get("stage")
    if stage not in (0, 1, 2, 3) and not configuration.data.get("autotuning"):
        message = "no stage" if stage is None else f"stage {shown(stage)}"
        yield "zero_optimization.stage", f"{message}: the program ends in an error", "a stage of 0, 1, 2 or 3"
    elif stage in (2, 3):
        for key, least in (("pipe_parallel_size", 1), ("model_parallel_size", 2)):
            size = configuration.whole(key)
            if size is not None and size >= least:
                ends = "the program ends at once, with exit code 0"
                message = f"`{key}` {size} with ZeRO stage {stage}: {ends}"
                yield key, message, f"set it to {least - 1}, or ZeRO stage 1"


def _batch(configuration: Configuration, replicas: int | None) -> Iterator[Fault]:
    total, micro = (
        configuration.whole(f"train_{name}") for name in ("batch_size", "micro_batch_size_per_gpu")
    )
    if "gradient_accumulation_steps" in configuration.data:
        return  # the three are held against each other as DeepSpeed does
    if total is not None and micro is not None and replicas is not None and total != micro * replicas:
        message = f"no gradient_accumulation_steps, which is 1 then: {total} is not {micro} x 1 x {replicas}"
        whole, rest = divmod(total, micro * replicas) if micro > 0 else (0, 1)
        hint = f"add gradient_accumulation_steps {whole}" if not rest else "numbers that go together"
        yield "train_batch_size", f"{message}: the program asserts", hint


def _precision(data: dict[str, Any]) -> Iterator[Fault]:
    precision, words = data.get("precision"), neox_keys()["precision"].choices
    if precision is not None and precision not in words:
        word = {"bf16": "bfloat16", "float16": "fp16", "half": "fp16"}.get(str(precision).lower())
        hint = f"write {word or ', '.join(words)}"
        yield (
            "precision",
            f"`precision` is {shown(precision)}: the program trains in fp32 without a word",
            hint,
        )
    if "optimizer" not in data:
        return  # the part of the files that is DeepSpeed's is another one
    if precision == "fp16" and not data.get("fp16"):
        message = "without an `fp16` mapping the program writes one with `type`, which DeepSpeed refuses"
        yield "precision", message, "add fp16: {enabled: true}"
    block = data.get("bf16")
    is_bf16 = precision == "bfloat16" or (isinstance(block, dict) and block.get("enabled") is True)
    if is_bf16 and data.get("zero_optimization") is None:
        key = "precision" if precision == "bfloat16" else "bf16"
        yield (
            key,
            "with bfloat16 the program ends in an error without zero_optimization",
            "add it, with a stage",
        )


def _blocks(configuration: Configuration) -> Iterator[Finding]:
    data = configuration.data
    for name, word in (("fp16", "fp16"), ("bf16", "bfloat16")):
        block, precision = data.get(name), data.get("precision")
        if not isinstance(block, dict):
            continue
        key = f"{name}.enabled"
        if block.get("enabled") is True and precision is not None and precision != word:
            message, hint = f"`{key}` is true and `precision` is {shown(precision)}", "say one thing in both"
            yield Finding("DSF697", Severity.ERROR, message, key, configuration.place(key), hint)
        if "type" in block:
            key = f"{name}.type"
            message = f"`{key}` is a key of an old fork: DeepSpeed has none of this name"
            place = configuration.place(key)
            yield Finding("DSF612", Severity.ERROR, message, key, place, "set `precision` instead")


def _optimizer(data: dict[str, Any]) -> Iterator[Fault]:
    optimizer = data.get("optimizer")
    if not isinstance(optimizer, dict):
        return
    kind, parameters = optimizer.get("type"), optimizer.get("params")
    names = neox_keys()["optimizer_type"].choices
    if not isinstance(kind, str) or not isinstance(parameters, dict):
        yield (
            "optimizer",
            "the program wants a text `type` and a mapping `params` in it",
            "add what is missing",
        )
        return
    if kind.lower() not in names:
        hint = (
            "write Adam, whose decay the program decouples"
            if kind.lower() == "adamw"
            else f"one of {', '.join(names)}"
        )
        yield "optimizer.type", f"`optimizer.type` is {shown(kind)}: the program refuses it", hint
    if "weight_decay" in parameters:
        message = "the program takes `weight_decay` from the top, and ends in an error where it stands here"
        yield "optimizer.params.weight_decay", message, "move it to the top"
    rate, least = parameters.get("lr", 1e-3), data.get("min_lr", 0.0)
    if is_number(rate) and is_number(least) and least > rate:
        yield (
            "min_lr",
            f"min_lr {least} is more than the rate {rate}: the program refuses it",
            "a lower min_lr",
        )


def _data(data: dict[str, Any]) -> Iterator[Fault]:
    kinds = ("train", "valid", "test")
    given = [f"{kind}_data_paths" for kind in kinds if data.get(f"{kind}_data_paths") is not None]
    if given and len(given) < len(kinds):
        lacking = next(f"{kind}_data_paths" for kind in kinds if f"{kind}_data_paths" not in given)
        yield (
            given[0],
            f"`{lacking}` is missing beside it: the program asserts",
            "add it, or use data_path and split",
        )
    if len(given) == len(kinds) and data.get("data_path") is not None:
        yield "data_path", "it stands beside lists of data sets: the program asserts", "keep one of the two"
    for kind in kinds:
        paths, weights = data.get(f"{kind}_data_paths"), data.get(f"{kind}_data_weights")
        if isinstance(paths, list) and isinstance(weights, list) and len(paths) != len(weights):
            message = f"{len(weights)} weights for {len(paths)} data sets: the program asserts"
            yield f"{kind}_data_weights", message, "one weight for each path"
    has_steps = any(data.get(key) is not None for key in ("checkpoint_factor", "extra_save_iters"))
    # Without the steps of training this is the part of the files that says where things are.
    if data.get("save") is not None and not has_steps and "train_iters" in data:
        yield "save", "nothing says at which steps: the program refuses it", "add checkpoint_factor"
