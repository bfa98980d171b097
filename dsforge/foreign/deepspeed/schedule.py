"""A DeepSpeed scheduler as a recipe's learning-rate schedule."""

from __future__ import annotations

from dsforge.foreign.findings import is_number, is_open, shown
from dsforge.foreign.imports import Taking

_DECAYS = {"WarmupLR": "constant", "WarmupDecayLR": "linear", "WarmupCosineLR": "cosine"}
_WARMUP_STEPS = 1000
"""The library's default of warmup_num_steps, in all three."""
_MIN_RATIO = 0.0001
"""The library's default of cos_min_ratio."""


def carry_schedule(taking: Taking) -> None:
    """Carry decay, warm-up, peak rate and length; what has no place in a recipe is left with its reason."""
    if not taking.seen.has("scheduler"):
        taking.leave("scheduler", "the file has none: constant rate, and the length is the recipe's")
        taking.carry("optimizer.lr_schedule", "constant", "no scheduler in the file")
        return
    name = taking.take("scheduler.type")
    if not isinstance(name, str) or name not in _DECAYS:
        taking.need("optimizer.lr_schedule", "scheduler.type", f"no recipe has the schedule {shown(name)}")
        return
    taking.carry("optimizer.lr_schedule", _DECAYS[name], "scheduler.type")
    warmup = taking.take("scheduler.params.warmup_num_steps", _WARMUP_STEPS)
    if is_open(warmup):
        reason = "the schedule's warm-up is open in the file"
        taking.need("optimizer.warmup_steps", "scheduler.params.warmup_num_steps", reason)
    else:
        taking.carry("optimizer.warmup_steps", warmup, "scheduler.params.warmup_num_steps")
    if taking.take("scheduler.params.warmup_type", "log") == "log":
        taking.leave(
            "scheduler.params.warmup_type", "a recipe warms up linearly, this schedule logarithmically"
        )
    _peak(taking)
    if is_open(steps := taking.take("scheduler.params.total_num_steps")):
        taking.need("train.steps", "scheduler.params.total_num_steps", "the run's length is open in the file")
    elif steps is not None:
        taking.carry("train.steps", steps, "scheduler.params.total_num_steps")
    else:
        taking.need("train.steps", "scheduler.type", f"{name} does not say how long the run is")
    for start in ("warmup_min_lr", "warmup_min_ratio"):
        if taking.take(f"scheduler.params.{start}", 0):
            taking.leave(f"scheduler.params.{start}", "a recipe's warm-up starts at 0")
    if name == "WarmupCosineLR":
        ratio, peak = (
            taking.take("scheduler.params.cos_min_ratio", _MIN_RATIO),
            taking.out.value("optimizer.lr"),
        )
        if is_number(ratio) and is_number(peak):
            taking.carry(
                "optimizer.min_lr",
                float(f"{peak * ratio:.12g}"),
                "scheduler.params.cos_min_ratio x optimizer.params.lr",
            )


def _peak(taking: Taking) -> None:
    """The scheduler's peak rate wins over the optimizer's, as in the engine."""
    peak = taking.take("scheduler.params.warmup_max_lr")
    if is_open(peak):
        if taking.out.value("optimizer.lr") is None:
            reason = "the peak rate is open in the file"
            taking.need("optimizer.lr", "scheduler.params.warmup_max_lr", reason)
    elif is_number(peak):
        taking.out.carried = [one for one in taking.out.carried if one.key != "optimizer.lr"]
        taking.carry("optimizer.lr", peak, "scheduler.params.warmup_max_lr")
