"""The DeepSpeed configuration of a plan: complete, explicit, and no key that DeepSpeed never reads."""

from __future__ import annotations

from typing import Any

from dsforge.cost.states import sums_in_fp32
from dsforge.layout.loss_scale import FIRST_POWER, LEAST, STEPS_TO_RAISE
from dsforge.plan.types import Plan
from dsforge.render.deepspeed_autotp import autotp_section
from dsforge.render.deepspeed_offload import AIO, offload_sections

_NEVER = 1_000_000_000
"""Steps between the engine's own progress lines; ours are in metrics.jsonl."""


def deepspeed_config(plan: Plan) -> dict[str, Any]:
    """Return the configuration; all three batch numbers are written, `auto` never is."""
    optimizer, is_ours = plan.optimizer, plan.optimizer.type != "adamw"
    parameters: dict[str, Any] = {
        "lr": optimizer.lr,
        "betas": list(optimizer.betas),
        "eps": optimizer.eps,
        "weight_decay": optimizer.weight_decay,
    }
    if plan.accelerator == "cpu":
        # Without this the library compiles its fused CPU Adam, minutes of work for a toy.
        parameters |= {"torch_adam": True, "fused": True}
    config: dict[str, Any] = {
        "train_batch_size": plan.batch.global_size,
        "train_micro_batch_size_per_gpu": plan.batch.micro,
        "gradient_accumulation_steps": plan.batch.accumulation_steps,
        "gradient_clipping": optimizer.grad_clip,
        "optimizer": {"type": "AdamW", "params": parameters},
        "zero_optimization": {"stage": plan.layout.zero, **offload_sections(plan)},
        "steps_per_print": _NEVER,
    }
    if plan.external is not None or is_ours:
        # The program makes its optimizer itself, and DeepSpeed then reads no section of that name.
        del config["optimizer"]
    if plan.layout.sequence_parallel and plan.layout.pp > 1:
        # The engine takes what a stage sends for equal on all shards and sends a part of each.
        config["pipeline"] = {"pipe_partitioned": False, "grad_partitioned": False}
    if is_ours:
        config["zero_allow_untested_optimizer"] = True
        if plan.offload.optimizer != "none":
            config["zero_force_ds_cpu_optimizer"] = False
    if plan.model.hf_config is not None and plan.layout.tp > 1:
        config["tensor_parallel"] = autotp_section(plan.model, plan.layout.tp)
    if plan.offload.path is not None:
        config["aio"] = dict(AIO)
    if plan.train.precision == "fp16":
        config["fp16"] = {
            "enabled": True,
            "loss_scale": 0,  # adapts
            "initial_scale_power": FIRST_POWER,
            "loss_scale_window": STEPS_TO_RAISE,
            "hysteresis": 1,  # the first overflow lowers it
            "min_loss_scale": LEAST,
        }
    if plan.train.precision == "bf16":
        config["bf16"] = {"enabled": True}
        if sums_in_fp32(plan.train.precision, plan.layout.zero):
            # Sums over micro-batches in bf16 would lose what is smaller than 1/256 of them.
            config["data_types"] = {"grad_accum_dtype": "fp32"}
    return config
