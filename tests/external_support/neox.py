"""What GPT-NeoX makes of a configuration: its checks, what it works out, and DeepSpeed's part."""

from __future__ import annotations

from typing import Any

from dsforge.catalog.engines.neox import neox_keys

REQUIRED = ("num_layers", "hidden_size", "num_attention_heads", "max_position_embeddings")


class Refused(ValueError):
    """The program raises, or ends before it trains."""


def settings_of(configuration: dict[str, Any]) -> dict[str, Any]:
    """Return every key as the program has it when it starts to train."""
    known = {key: row for key, row in neox_keys().items() if not row.is_dropped}
    if strange := set(configuration) - set(known):
        raise Refused(f"unexpected keys {sorted(strange)}")
    made = {key: row.default for key, row in known.items()} | configuration
    _batch(made)
    _precision(made)
    stage = (made["zero_optimization"] or {"stage": 0})["stage"]
    if made["optimizer"] is None:
        raise Refused("no optimizer")
    made |= {"zero_stage": stage, "optimizer_type": made["optimizer"]["type"]}
    made |= {"lr": made["optimizer"]["params"]["lr"], "clip_grad": made["gradient_clipping"]}
    for key, value in made.items():
        if not known[key].takes(value):
            raise Refused(f"{key} is {value!r}")
    if missing := [key for key in REQUIRED if made[key] is None]:
        raise Refused(f"{missing} missing")
    if made["hidden_size"] % made["num_attention_heads"] or made["min_lr"] > made["lr"]:
        raise Refused("heads or rates")
    if made["seq_length"] > made["max_position_embeddings"]:
        raise Refused("positions")
    if made["save"] is not None and made["checkpoint_factor"] is None and made["extra_save_iters"] is None:
        raise Refused("save without steps")
    sets = [made[f"{kind}_data_paths"] for kind in ("train", "valid", "test")]
    if any(sets) != all(sets) or (all(sets) and made["data_path"] is not None):
        raise Refused("data sets")
    if made["num_kv_heads"] is not None and made["num_attention_heads"] % made["num_kv_heads"]:
        raise Refused("kv heads")
    if stage > 1 and (made["pipe_parallel_size"] > 0 or made["model_parallel_size"] > 1):
        raise Refused("ends without training")
    if made["seed"] < 1:
        raise Refused("seed")
    return made


def data_parallel(made: dict[str, Any]) -> int:
    """Return the replicas; 0 stages are one."""
    rest, fraction = divmod(
        made["global_num_gpus"], max(1, made["pipe_parallel_size"]) * max(1, made["model_parallel_size"])
    )
    if fraction:
        raise Refused("replicas are no whole number")
    return int(rest)


def _batch(made: dict[str, Any]) -> None:
    total, micro, steps = (
        made[name]
        for name in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    )
    replicas = data_parallel(made)
    if total is None:
        total = micro * steps * replicas
    if micro is None:
        micro = total // replicas // steps
    if total != micro * steps * replicas or min(total, micro, steps) < 1:
        raise Refused(f"{total} != {micro} * {steps} * {replicas}")
    made |= {"train_batch_size": total, "train_micro_batch_size_per_gpu": micro, "batch_size": micro}


def _precision(made: dict[str, Any]) -> None:
    for block, word in (("fp16", "fp16"), ("bf16", "bfloat16")):
        if (made[block] or {}).get("enabled"):
            if made["precision"] not in (None, word):
                raise Refused("precisions conflict")
            made["precision"] = word
    if made["precision"] == "fp16":
        made["fp16"] = (
            {**made["fp16"], "enabled": True} if made["fp16"] else {"type": "fp16", "enabled": True}
        )
    elif made["precision"] == "bfloat16":
        if not made["bf16"]:
            made["deepspeed_extra_args"] = {**(made["deepspeed_extra_args"] or {}), "bf16": {"enabled": True}}
        if made["zero_optimization"] is None:
            raise Refused("bfloat16 without zero_optimization")
    else:
        made["precision"] = "fp32"  # whatever it was


def deepspeed_config(made: dict[str, Any]) -> dict[str, Any]:
    """Return what DeepSpeed is given: its keys that differ from the program's defaults, then extra ones."""
    rows = {key: row for key, row in neox_keys().items() if row.section == "deepspeed"}
    passed = {key: made[key] for key, row in rows.items() if made[key] != row.default}
    extra = passed.pop("deepspeed_extra_args", None)
    return {**passed, **(extra or {})}
