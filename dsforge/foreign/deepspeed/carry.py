"""A DeepSpeed configuration as what a recipe carries of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsforge.catalog.engines.deepspeed import DeepSpeedKeys
from dsforge.cost.states import sums_in_fp32
from dsforge.foreign.deepspeed.keys import BATCH
from dsforge.foreign.deepspeed.schedule import carry_schedule
from dsforge.foreign.deepspeed.sense import device_of, enabled
from dsforge.foreign.deepspeed.solvers import optimizer_parameters
from dsforge.foreign.findings import is_number, is_open, shown
from dsforge.foreign.imports import Import, Taking
from dsforge.foreign.json_text import read_json

_REASONS = {
    "zero_optimization": "a tuning knob of the engine: its default applies",
    "fp16": "loss scaling is the trainer's",
    "bf16": "a detail of the engine's 16-bit optimizer: its default applies",
    "optimizer": "a detail of how the engine computes the optimizer",
    "activation_checkpointing": "acts only where the program asks for it; a recipe says train.recompute",
    "steps_per_print": "every step is written to metrics.jsonl",
    "wall_clock_breakdown": "step times are written to metrics.jsonl",
    "tensorboard": "where logs go is the run directory's business",
    "wandb": "the run's name and project are not the recipe's",
    "flops_profiler": "a recipe holds no profiler",
    "communication_data_type": "gradients are reduced in the trainer's own type",
    "data_types": "the trainer chooses the type of gradient sums by precision and ZeRO stage",
    "comms_logger": "a recipe holds no communication log",
}


def carry_deepspeed(
    text: str, file: str, keys: DeepSpeedKeys, *, given: Mapping[str, Any], replicas: int | None
) -> Import:
    """Return what a recipe carries of a DeepSpeed JSON, what not and why, and what must be given beside it.

    `given`: recipe keys that the caller sets, and their values; `replicas`: the data-parallel size, if known.
    DsforgeError DSF602 when the text is not JSON.
    """
    taking = Taking(read_json(text, file).document, given)
    _batch(taking, replicas)
    _precision(taking)
    _zero(taking)
    _optimizer(taking, keys)
    carry_schedule(taking)
    _layout(taking)
    for name in ("tensorboard", "wandb"):
        if taking.take(f"{name}.enabled") is True:
            taking.carry(f"monitor.{name}", True, f"{name}.enabled")
    for dotted in list(taking.seen.document.data):
        if dotted not in keys.top.keys:
            taking.leave(dotted, f"DeepSpeed {keys.version} never reads this key")
    return taking.finish(_REASONS, "no recipe holds it: the engine's default applies")


def _batch(taking: Taking, replicas: int | None) -> None:
    total, micro, steps = (taking.take(key) for key in BATCH)
    if micro == "auto":
        taking.carry("batch.micro", "auto", BATCH[1])
    elif is_open(micro):
        taking.need("batch.micro", BATCH[1], f"the micro-batch is {shown(micro)} in the file")
    elif micro is not None:
        taking.carry("batch.micro", micro, BATCH[1])
    elif isinstance(total, int) and isinstance(steps, int) and replicas and total % (steps * replicas) == 0:
        taking.carry(
            "batch.micro", total // (steps * replicas), f"{BATCH[0]} / (accumulation x DP {replicas})"
        )
    elif isinstance(total, int) and steps is None and replicas and total % replicas == 0:
        taking.carry(
            "batch.micro", total // replicas, f"{BATCH[0]} / DP {replicas}: the engine accumulates once"
        )
    if is_open(total) or (total is None and (is_open(micro) or is_open(steps) or micro is None)):
        taking.need("batch.global", BATCH[0], "the file does not say how many samples a step trains on")
    elif total is not None:
        taking.carry("batch.global", total, BATCH[0])
    elif replicas is not None and isinstance(micro, int) and isinstance(steps or 1, int):
        made = micro * (steps or 1) * replicas
        taking.carry("batch.global", made, f"micro {micro} x accumulation {steps or 1} x DP {replicas}")


def _precision(taking: Taking) -> None:
    bf16 = "bf16" if taking.seen.has("bf16") else "bfloat16"
    opened = [one for one in (bf16, "fp16") if is_open(taking.take(f"{one}.enabled"))]
    on = [one for one in (bf16, "fp16") if enabled(taking.seen, one)]
    if on:
        taking.carry("train.precision", "bf16" if on[0] == bf16 else "fp16", f"{on[0]}.enabled")
    elif opened:
        taking.need("train.precision", f"{opened[0]}.enabled", f"`{opened[0]}.enabled` is open in the file")
    else:
        taking.carry("train.precision", "fp32", "no 16-bit format is enabled")


def _zero(taking: Taking) -> None:
    section = taking.seen.get("zero_optimization")
    if isinstance(section, bool):
        taking.take("zero_optimization")
        taking.carry("parallel.zero", int(section), "zero_optimization")
        return
    stage = taking.take("zero_optimization.stage", 0)
    if stage == "auto":
        taking.carry("parallel.zero", "auto", "zero_optimization.stage")
    elif is_open(stage):
        taking.need("parallel.zero", "zero_optimization.stage", f"the stage is {shown(stage)} in the file")
    else:
        taking.carry("parallel.zero", stage, "zero_optimization.stage")
    _offload(taking)
    kept = taking.seen.get("data_types.grad_accum_dtype")
    precision = taking.out.value("train.precision")
    if kept == "fp32" and isinstance(stage, int) and precision and sums_in_fp32(precision, stage):
        taking.take("data_types.grad_accum_dtype")


def _offload(taking: Taking) -> None:
    paths = []
    for name, key, old in (
        ("offload_optimizer", "offload.optimizer", "cpu_offload"),
        ("offload_param", "offload.parameters", "cpu_offload_param"),
    ):
        dotted = f"zero_optimization.{name}"
        device = device_of(taking.seen, name)
        taking.take(f"{dotted}.device")
        if taking.take(f"zero_optimization.{old}") is True:
            taking.carry(key, "cpu", f"zero_optimization.{old}")
        elif is_open(device):
            taking.need(key, f"{dotted}.device", f"`{dotted}.device` is {shown(device)} in the file")
        elif device not in (None, "none"):
            taking.carry(key, device, f"{dotted}.device")
        path = taking.take(f"{dotted}.nvme_path")
        if device == "nvme" and isinstance(path, str):
            paths.append((path, f"{dotted}.nvme_path"))
    for path, source in paths[:1]:
        taking.carry("offload.path", path, source)
    for path, source in paths[1:]:
        if path != paths[0][0]:
            taking.leave(source, "a recipe has one NVMe folder")


def _optimizer(taking: Taking, keys: DeepSpeedKeys) -> None:
    _clipping(taking, keys)
    if not taking.seen.has("optimizer"):
        taking.leave("optimizer", "the file has none: the program makes its own; the recipe's stands")
        return
    name = taking.take("optimizer.type")
    decoupled = taking.take("optimizer.params.adam_w_mode", True)
    other_steps = [key for key in ("nesterov", "dampening") if taking.take(f"optimizer.params.{key}")]
    folded = name.lower() if isinstance(name, str) else None
    if folded == "adamw" or (folded == "adam" and decoupled):
        taking.carry("optimizer.type", "adamw", "optimizer.type")
    elif folded == "lion" or (folded == "sgd" and not other_steps):
        taking.carry("optimizer.type", folded, "optimizer.type")
    else:
        known = "adamw, lion, or sgd without nesterov and dampening"
        taking.need(
            "optimizer.type", "optimizer.type", f"a recipe trains with {known}, the file with {shown(name)}"
        )
    defaults = optimizer_parameters(taking.seen, keys) or {}
    for key in ("lr", "weight_decay", "betas", "eps", "momentum"):
        dotted = f"optimizer.params.{key}"
        if taking.seen.has(dotted):
            taking.plain(f"optimizer.{key}", dotted)
        elif _is_plain(defaults.get(key)):
            taking.carry(f"optimizer.{key}", defaults[key], f"the default of {name}")


def _is_plain(value: Any) -> bool:
    return is_number(value) or (isinstance(value, list) and all(is_number(one) for one in value))


def _clipping(taking: Taking, keys: DeepSpeedKeys) -> None:
    if taking.seen.has("gradient_clipping"):
        taking.plain("optimizer.grad_clip", "gradient_clipping")
    else:
        default = keys.top.keys["gradient_clipping"].default
        taking.carry("optimizer.grad_clip", default, f"the default of DeepSpeed {keys.version}")


def _layout(taking: Taking) -> None:
    for key, dotted in (
        ("parallel.tp", "tensor_parallel.autotp_size"),
        ("parallel.pp", "pipeline.stages"),
    ):
        value = taking.take(dotted)
        if isinstance(value, int) and value > 1:
            taking.carry(key, value, dotted)
    if (taking.take("sequence_parallel_size") or 1) != 1:
        taking.need(
            "parallel.cp", "sequence_parallel_size", "Ulysses sequence parallelism is no recipe's layout"
        )
