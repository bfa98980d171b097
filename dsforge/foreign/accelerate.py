"""A configuration of Accelerate: what its launcher would do with it, and what a recipe carries of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsforge.base.errors import DsforgeError, Finding, Severity
from dsforge.catalog.engines.accelerate import AccelerateKeys
from dsforge.foreign.findings import Examined, is_count, is_open, nearest, shown
from dsforge.foreign.imports import Import, Taking
from dsforge.recipe.document import Document, parse

_DEEPSPEED = "deepspeed_config"
_FILE = f"{_DEEPSPEED}.deepspeed_config_file"
_IN_FILE = ("gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device",
            "offload_param_device", "zero3_save_16bit_model")  # fmt: skip
"""What the launcher takes from the JSON alone when one is named."""
_PRECISIONS = {"no": "fp32", "bf16": "bf16", "fp16": "fp16"}
_SECTION_OF = {"DEEPSPEED": _DEEPSPEED, "FSDP": "fsdp_config", "MEGATRON_LM": "megatron_lm_config"}
_MOST_STAGE = 3
_STAGES = {"FULL_SHARD": 3, "1": 3, "SHARD_GRAD_OP": 2, "2": 2, "NO_SHARD": 0, "3": 0}
"""FSDP's sharding strategies, by name and by number, as the ZeRO stages that shard the same."""


def read_accelerate(text: str, file: str) -> Document:
    """Return the document of an Accelerate YAML; DsforgeError DSF002, DSF003 when it is not one."""
    return parse(text.removeprefix("\ufeff"), file)


def check_accelerate(text: str, file: str, known: AccelerateKeys) -> list[Finding]:
    """Return what the launcher would reject, ignore or contradict."""
    seen = Examined(read_accelerate(text, file))
    for key in seen.document.data:
        if key not in known.keys:
            near = nearest(key, known.keys)
            hint = f"did you mean `{near}`?" if near else f"remove `{key}`"
            seen.error("DSF661", f"unknown key `{key}`: accelerate rejects the file", key, hint)
    section = seen.get(_DEEPSPEED)
    for key in section if isinstance(section, dict) else ():
        if key not in known.deepspeed_config:
            near = nearest(key, known.deepspeed_config)
            hint = f"did you mean `{_DEEPSPEED}.{near}`?" if near else f"remove `{key}`"
            message = f"unknown key `{_DEEPSPEED}.{key}`: accelerate's launcher never reads it"
            seen.error("DSF610", message, f"{_DEEPSPEED}.{key}", hint)
    _check_values(seen, known)
    _check_sections(seen)
    order = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}
    return sorted(seen.findings, key=lambda finding: order[finding.severity])


def _check_values(seen: Examined, known: AccelerateKeys) -> None:
    kind = seen.get("distributed_type")
    if not seen.has("distributed_type"):
        message = "no `distributed_type`: accelerate rejects the file"
        seen.error("DSF661", message, "distributed_type", "add it: DEEPSPEED, FSDP, MULTI_GPU or 'NO'")
    elif kind not in known.distributed_types:
        hint = "quote it: 'NO'" if kind is False else f"one of {', '.join(known.distributed_types)}"
        message = f"`distributed_type: {shown(kind)}` is none that accelerate has"
        seen.error("DSF661", message, "distributed_type", hint)
    precision = seen.get("mixed_precision")
    if seen.has("mixed_precision") and precision not in (*known.mixed_precisions, None):
        hint = "quote it: 'no'" if precision is False else f"one of {', '.join(known.mixed_precisions)}"
        message = f"`mixed_precision: {shown(precision)}` is none that accelerate has"
        seen.error("DSF661", message, "mixed_precision", hint)
    _check_counts(seen)
    processes, machines = seen.get("num_processes"), seen.get("num_machines", 1)
    if is_count(processes) and is_count(machines) and processes % machines:
        message = f"num_processes {processes} is no multiple of num_machines {machines}"
        hint = f"num_processes counts all machines: for example {processes * machines}"
        seen.error("DSF662", message, "num_processes", hint, value=processes * machines)


_LEAST = {"num_processes": 1, "num_machines": 1, "machine_rank": 0, f"{_DEEPSPEED}.zero_stage": 0,
          f"{_DEEPSPEED}.gradient_accumulation_steps": 1}  # fmt: skip


def _check_counts(seen: Examined) -> None:
    for key, least in _LEAST.items():
        value = seen.get(key)
        if value is None or is_open(value) or (is_count(value, least) and not _is_beyond(key, value)):
            continue
        message = f"`{key}` is {shown(value)}, the launcher counts with a whole number"
        seen.error("DSF661", message, key, f"a whole number of at least {least}" + _up_to(key))


def _is_beyond(key: str, value: int) -> bool:
    return key.endswith(".zero_stage") and value > _MOST_STAGE


def _up_to(key: str) -> str:
    return f" and at most {_MOST_STAGE}" if key.endswith(".zero_stage") else ""


def _check_sections(seen: Examined) -> None:
    kind = seen.get("distributed_type")
    for name, section in _SECTION_OF.items():
        if kind != name and seen.get(section):
            message = f"`{section}` beside `distributed_type: {shown(kind)}` is never read"
            seen.error("DSF662", message, section, f"set distributed_type to {name}, or remove `{section}`")
    if seen.get(_FILE) is None:
        return
    for key in _IN_FILE:
        if seen.has(f"{_DEEPSPEED}.{key}"):
            message = f"`{key}` beside `deepspeed_config_file`: accelerate refuses what the JSON should say"
            hint = "write it into the JSON and remove it here"
            seen.error("DSF662", message, f"{_DEEPSPEED}.{key}", hint)


def carry_accelerate(
    text: str, file: str, known: AccelerateKeys, *, given: Mapping[str, Any], replicas: int | None
) -> Import:
    """Return what a recipe carries of an Accelerate YAML; it holds no batch size and no optimizer.

    DsforgeError DSF691 when the file leaves everything to a DeepSpeed JSON that it names.
    """
    taking = Taking(read_accelerate(text, file), given)
    named = taking.seen.get(_FILE)
    if named is not None:
        place = taking.seen.document.place(tuple(_FILE.split(".")))
        hint = f"dsforge init --from-deepspeed {named}"
        raise DsforgeError("DSF691", f"all that counts stands in {named}, which this file names", place, hint)
    _cluster(taking)
    _precision(taking)
    kind = taking.take("distributed_type")
    if kind == "DEEPSPEED":
        _deepspeed(taking, known)
    elif kind == "FSDP":
        _fsdp(taking)
    elif kind == "MEGATRON_LM":
        _megatron(taking)
    elif kind in ("MULTI_GPU", "MULTI_CPU", "NO"):
        taking.carry("trainer", "ddp", "distributed_type")
        taking.carry("parallel.zero", 0, "distributed_type")
    else:
        taking.need("trainer", "distributed_type", f"no trainer does what {shown(kind)} does")
    _batch(taking, replicas)
    reasons = {
        "main_process_ip": "the rendezvous is dsforge's own",
        "main_process_port": "the rendezvous is dsforge's own",
        "machine_rank": "a recipe is the same on every machine",
        "compute_environment": "a recipe says cluster and launch.launcher instead",
        "main_training_function": "the trainer is dsforge's own",
        "fsdp_config": "the trainer wraps each block and keeps its own checkpoints",
        _DEEPSPEED: "a detail of how the engine starts or saves",
    }
    return taking.finish(reasons, "no recipe holds it")


def _cluster(taking: Taking) -> None:
    machines = taking.take("num_machines", 1)
    processes = taking.take("num_processes")
    if is_count(processes) and is_count(machines):
        source = "num_processes" if machines == 1 else "num_processes / num_machines"
        taking.carry("cluster.nodes", machines, "num_machines")
        taking.carry("cluster.gpus_per_node", processes // machines, source)
    if taking.take("use_cpu") is True:
        taking.carry("cluster.gpu", "cpu", "use_cpu")
    if hostfile := taking.take(f"{_DEEPSPEED}.deepspeed_hostfile"):
        taking.carry("cluster.hostfile", hostfile, f"{_DEEPSPEED}.deepspeed_hostfile")
        for word, wanted in (("inclusion", "cluster.include"), ("exclusion", "cluster.exclude")):
            key = f"{_DEEPSPEED}.deepspeed_{word}_filter"
            if choice := taking.take(key):
                taking.carry(wanted, choice, key)


def _precision(taking: Taking) -> None:
    word = taking.take("mixed_precision")
    word = "no" if word in (None, False) else str(word)
    if word in _PRECISIONS:
        source = "mixed_precision" if taking.seen.has("mixed_precision") else "no mixed_precision"
        taking.carry("train.precision", _PRECISIONS[word], source)
    else:
        taking.need("train.precision", "mixed_precision", f"no recipe trains in {word}")


def _deepspeed(taking: Taking, known: AccelerateKeys) -> None:
    key = f"{_DEEPSPEED}.zero_stage"
    stage = taking.take(key)
    taking.carry("parallel.zero", known.default_zero_stage if stage is None else stage, key)
    for name, wanted in (("optimizer", "offload.optimizer"), ("param", "offload.parameters")):
        device = taking.take(f"{_DEEPSPEED}.offload_{name}_device")
        if device not in (None, "none"):
            taking.carry(wanted, device, f"{_DEEPSPEED}.offload_{name}_device")
        path = taking.take(f"{_DEEPSPEED}.offload_{name}_nvme_path")
        if path not in (None, "none") and taking.out.value("offload.path") is None:
            taking.carry("offload.path", path, f"{_DEEPSPEED}.offload_{name}_nvme_path")
    clip = taking.take(f"{_DEEPSPEED}.gradient_clipping")
    if not is_open(clip) and clip is not None:
        taking.carry("optimizer.grad_clip", clip, f"{_DEEPSPEED}.gradient_clipping")


def _fsdp(taking: Taking) -> None:
    taking.carry("trainer", "fsdp", "distributed_type")
    strategy = str(taking.take("fsdp_config.fsdp_sharding_strategy", "FULL_SHARD"))
    version = taking.take("fsdp_config.fsdp_version", 1)
    whole = taking.take("fsdp_config.fsdp_reshard_after_forward", default=True)
    if version == 2:
        strategy = "FULL_SHARD" if whole in (True, "FULL_SHARD") else "SHARD_GRAD_OP"
    if strategy in _STAGES:
        taking.carry("parallel.zero", _STAGES[strategy], "fsdp_config")
    else:
        taking.need("parallel.zero", "fsdp_config.fsdp_sharding_strategy", f"no recipe shards as {strategy}")
    if taking.take("fsdp_config.fsdp_offload_params") is True:
        taking.carry("offload.parameters", "cpu", "fsdp_config.fsdp_offload_params")
        taking.carry("offload.optimizer", "cpu", "fsdp_config.fsdp_offload_params")
    if taking.take("fsdp_config.fsdp_activation_checkpointing") is True:
        taking.carry("train.recompute", "full", "fsdp_config.fsdp_activation_checkpointing")


def _megatron(taking: Taking) -> None:
    taking.carry("trainer", "megatron-core", "distributed_type")
    prefix = "megatron_lm_config.megatron_lm_"
    for name, key in (
        ("tp_degree", "parallel.tp"),
        ("pp_degree", "parallel.pp"),
        ("sequence_parallelism", "parallel.sequence_parallel"),
        ("gradient_clipping", "optimizer.grad_clip"),
    ):
        taking.plain(key, prefix + name)
    if taking.take(prefix + "recompute_activations") is True:
        taking.carry("train.recompute", "selective", prefix + "recompute_activations")


def _batch(taking: Taking, replicas: int | None) -> None:
    """Carry the batch number that follows from the accumulation and the one that is given."""
    key = f"{_DEEPSPEED}.gradient_accumulation_steps"
    steps, total, micro = taking.take(key), taking.given.get("batch.global"), taking.given.get("batch.micro")
    known = isinstance(steps, int) and steps > 0 and replicas is not None
    if known and isinstance(total, int) and micro is None:
        made, rest = divmod(total, steps * replicas)
        if rest:
            raise DsforgeError(
                "DSF691",
                f"batch.global {total} is no multiple of accumulation {steps} x DP {replicas}",
                taking.seen.document.place(tuple(key.split("."))),
                f"give a multiple of {steps * replicas}, or batch.micro too",
            )
        taking.carry("batch.micro", made, f"batch.global / (accumulation {steps} x DP {replicas})")
    elif known and isinstance(micro, int) and total is None:
        taking.carry(
            "batch.global", micro * steps * replicas, f"micro x accumulation {steps} x DP {replicas}"
        )
    elif total is None:
        taking.need("batch.global", key, "the file holds no batch size; batch.micro does as well")
    elif isinstance(steps, int):
        taking.leave(key, "follows from batch.global, batch.micro and DP")
