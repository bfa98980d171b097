"""What the keys of a DeepSpeed configuration mean together: precision, ZeRO and offload, batch."""

from __future__ import annotations

from typing import Any

from dsforge.base.errors import Severity
from dsforge.catalog.engines.deepspeed import DeepSpeedKeys
from dsforge.foreign.deepspeed.keys import BATCH
from dsforge.foreign.findings import Examined, is_number, is_open, shown

OFFLOADS = {"offload_optimizer": 1, "offload_param": 3}
"""The lowest ZeRO stage that each is honoured at."""
_NVME_STAGE = 3


def enabled(seen: Examined, section: str) -> bool:
    """Tell whether the engine takes a precision section as switched on."""
    return seen.get(f"{section}.enabled") in (True, 1, "true")


def effective_stage(seen: Examined) -> int | None:
    """Return the ZeRO stage that the engine would run; None while a template or a wrong value hides it."""
    section = seen.get("zero_optimization", {})
    if isinstance(section, bool):
        return int(section)
    stage = section.get("stage", 0) if isinstance(section, dict) else None
    if stage == "auto":
        return 0
    return int(stage) if is_number(stage) and stage in (0, 1, 2, 3) else None


def device_of(seen: Examined, offload: str) -> Any:
    """Return where an offload block puts states: none, cpu, nvme, or what else it says."""
    return seen.get(f"zero_optimization.{offload}.device", "none")


def check_precision(seen: Examined) -> None:
    """DSF630: both 16-bit formats at once."""
    bf16 = "bf16" if seen.has("bf16") else "bfloat16"
    if enabled(seen, "fp16") and enabled(seen, bf16):
        seen.error(
            "DSF630",
            f"`fp16.enabled` and `{bf16}.enabled` are both true: the engine refuses to start",
            "fp16.enabled",
            f"keep `{bf16}` on GPUs of compute capability 8.0 or newer, `fp16` on older ones",
            value=False,
        )


def check_clipping(seen: Examined, keys: DeepSpeedKeys) -> None:
    """DSF631: a default of the library that changes the training."""
    default = keys.top.keys["gradient_clipping"].default
    if not seen.has("gradient_clipping") and default:
        seen.say(
            "DSF631",
            Severity.NOTE,
            f"no `gradient_clipping`: DeepSpeed {keys.version} clips at {default:g} all the same",
            "gradient_clipping",
            "write the value that the run should have; 0 switches it off",
        )


def check_offload(seen: Examined) -> None:
    """DSF640, DSF641: offload at a stage that has nothing to offload, and NVMe without its place."""
    stage = effective_stage(seen)
    for name, lowest in OFFLOADS.items():
        device, key = device_of(seen, name), f"zero_optimization.{name}"
        if device not in ("cpu", "nvme"):
            continue
        if stage is not None and stage < lowest:
            seen.error(
                "DSF640",
                f"`{name}` to {device} under ZeRO stage {stage}: it takes stage {lowest} or higher",
                f"{key}.device",
                f"set `zero_optimization.stage` to {lowest}, or remove `{name}`",
                value="none",
            )
        if device != "nvme":
            continue
        if stage is not None and lowest <= stage < _NVME_STAGE:
            seen.error(
                "DSF641",
                f"`{name}` to nvme under ZeRO stage {stage}: only stage 3 writes to NVMe",
                f"{key}.device",
                'set `zero_optimization.stage` to 3, or `device` to "cpu"',
                value="cpu",
            )
        if not seen.get(f"{key}.nvme_path"):
            seen.error(
                "DSF641",
                f"`{name}` to nvme has no `nvme_path`: nothing complains until the first write",
                f"{key}.device",
                f"add `{key}.nvme_path`, a folder on a local disk",
            )


def check_batch(seen: Examined, replicas: int | None) -> None:
    """DSF620 to DSF622: the three batch numbers against each other and the data-parallel size."""
    total, micro, steps = values = [seen.get(key) for key in BATCH]
    if any(is_open(value) for value in values):
        return
    wrong = [key for key, value in zip(BATCH, values, strict=True) if value is not None and not _whole(value)]
    for key in wrong:
        value = seen.get(key)
        if isinstance(value, int | float):  # any other type is rejected where types are looked at
            what = f"`{key}` is {shown(value)}, not a whole number above 0"
            seen.error("DSF615", what, key, "write a whole number")
    if wrong:
        return
    if total is None and micro is None:
        seen.error(
            "DSF622",
            "neither `train_batch_size` nor `train_micro_batch_size_per_gpu`: the engine refuses to start",
            BATCH[0],
            "add the global batch and the micro-batch",
        )
    elif total is not None:
        _judge_total(seen, total, micro, steps, replicas)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _judge_total(
    seen: Examined, total: int, micro: int | None, steps: int | None, replicas: int | None
) -> None:
    given = (micro or 1) * (steps or 1)
    named = [f"micro {micro}"] * bool(micro) + [f"accumulation {steps}"] * bool(steps)
    product = " x ".join(named) or "1"
    if total % given:
        nearest = max(given, total - total % given)
        seen.error(
            "DSF620",
            f"train_batch_size {total} is no multiple of {product} = {given}: no number of replicas fits",
            BATCH[0],
            f"for example {nearest}",
            value=nearest,
        )
    elif replicas is None:
        if micro and steps:
            message = (
                f"train_batch_size {total} = {product} x DP needs a data-parallel size of {total // given}"
            )
        else:
            message = f"train_batch_size {total} needs a data-parallel size that divides {total // given}"
        hint = "give it: --data-parallel N (GPUs / (TP x PP)), not the number of GPUs"
        seen.say("DSF621", Severity.NOTE, f"{message}; it is not known here", BATCH[0], hint)
    else:
        complete = bool(micro and steps)
        share, rest = divmod(total, given * replicas)
        if rest or share == 0 or (complete and share != 1):
            _contradiction(seen, total, micro, steps, replicas)


def _contradiction(seen: Examined, total: int, micro: int | None, steps: int | None, replicas: int) -> None:
    assumed = micro or max(1, total // ((steps or 1) * replicas))
    made = steps or max(1, total // (assumed * replicas))
    product = assumed * made * replicas
    offers = [f"train_batch_size {product}"]
    if total % (assumed * replicas) == 0:
        offers.append(f"gradient_accumulation_steps {total // (assumed * replicas)}")
    seen.error(
        "DSF620",
        f"train_batch_size {total} is not micro {assumed} x accumulation {made} x DP {replicas} = {product}: "
        "every rank stops in an assertion",
        BATCH[0],
        " or ".join(offers),
        value=product,
    )


def check_activation_checkpointing(seen: Examined) -> None:
    """DSF660: a block that only acts when the program asks for it."""
    block = seen.get("activation_checkpointing")
    if isinstance(block, dict) and any(block.values()):
        seen.warn(
            "DSF660",
            "`activation_checkpointing` recomputes nothing by itself: it takes effect only where the program "
            "calls `deepspeed.checkpointing`",
            "activation_checkpointing",
            "Megatron-DeepSpeed: --checkpoint-activations --deepspeed-activation-checkpointing",
        )
