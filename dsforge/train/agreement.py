"""Holds `ds_config.json` against the plan: the engine trains by the one, everything else by the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.layout.loss_scale import FIRST_POWER, LEAST, STEPS_TO_RAISE
from dsforge.plan.types import Optimizer, Plan

_DEFAULTS: dict[str, Any] = {"bf16.enabled": False, "fp16.enabled": False}
"""What the engine takes where the file says nothing."""


def planned_values(plan: Plan) -> dict[str, Any]:
    """Return what the engine's configuration must say, by dotted key."""
    batch, optimizer = plan.batch, plan.optimizer
    bf16, fp16 = (plan.train.precision == one for one in ("bf16", "fp16"))
    planned = {
        "train_batch_size": batch.global_size,
        "train_micro_batch_size_per_gpu": batch.micro,
        "gradient_accumulation_steps": batch.accumulation_steps,
        "gradient_clipping": optimizer.grad_clip,
        "zero_optimization.stage": plan.layout.zero,
        "zero_optimization.offload_optimizer.device": _place(plan.offload.optimizer),
        "zero_optimization.offload_param.device": _place(plan.offload.parameters),
        "tensor_parallel.autotp_size": plan.layout.tp
        if plan.model.hf_config is not None and plan.layout.tp > 1
        else None,
        "bf16.enabled": bf16,
        "fp16.enabled": fp16,
        "data_types.grad_accum_dtype": "fp32" if bf16 and plan.layout.zero >= 1 else None,
        "scheduler": None,
        **_optimizer_values(optimizer),
    }
    if fp16:
        # A scale that adapts, from its first value down at the first overflow.
        planned |= {"fp16.loss_scale": 0, "fp16.hysteresis": 1, "fp16.min_loss_scale": LEAST}
        planned |= {"fp16.initial_scale_power": FIRST_POWER, "fp16.loss_scale_window": STEPS_TO_RAISE}
    if plan.layout.sequence_parallel and plan.layout.pp > 1:
        # What a stage sends differs from shard to shard, and a part of each is not all of it.
        planned |= {"pipeline.pipe_partitioned": False, "pipeline.grad_partitioned": False}
    return planned


def _optimizer_values(optimizer: Optimizer) -> dict[str, Any]:
    """Any but AdamW the trainer makes itself, and the engine would ignore a section of that name."""
    if optimizer.type != "adamw":
        return {"optimizer": None}
    return {
        "optimizer.type": "AdamW",
        "optimizer.params.lr": optimizer.lr,
        "optimizer.params.betas": list(optimizer.betas),
        "optimizer.params.eps": optimizer.eps,
        "optimizer.params.weight_decay": optimizer.weight_decay,
    }


def _place(device: str) -> str | None:
    return None if device == "none" else device


def check_agrees(ds_config: Any, plan: Plan, path: Path) -> None:
    """Raise DsforgeError DSF305 for the first key whose value is not the plan's."""
    for key, planned in planned_values(plan).items():
        found = _value_at(ds_config, key)
        # True equals 1 to Python: a stage of `true` is none.
        if found != planned or isinstance(found, bool) is not isinstance(planned, bool):
            raise DsforgeError(
                "DSF305",
                f"{key} is {found!r}, the plan says {planned!r}",
                Place(file=str(path)),
                "change the recipe and render again: the bundle's files belong together",
                ExitCode.BEFORE_FIRST_STEP,
            )


def _value_at(config: Any, key: str) -> Any:
    value = config
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            return _DEFAULTS.get(key)
        value = value[part]
    return value
