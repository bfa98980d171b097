"""Published measurements as jobs of the cost model: one row of a CSV, one job, one measured step time."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dsforge.cost.calibration import Calibration
from dsforge.cost.job import Experts, Job, Latent, Machine, Work
from dsforge.cost.machine import machine_of
from dsforge.cost.step import step_seconds

GPUS = {
    "A100-SXM-80GB": "a100-sxm-80gb",
    "A100-SXM-40GB": "a100-sxm-40gb",
    "H100-SXM-80GB": "h100-sxm-80gb",
    "H100-SXM-96GB-HBM2e-500W": "h100-sxm-96gb",
    "H200-SXM": "h200-sxm-141gb",
    "B200-SXM": "b200-sxm-180gb",
    "B300-SXM": "b300-sxm",
    "GB200": "gb200",
    "GB300": "gb300",
    "A100-PCIe-80GB": "a100-pcie-80gb",
    "A10G-24GB": "a10g-24gb",
    "A6000-48GB": "rtx-a6000-48gb",
    "GH200-SXM-141GB": "gh200-144gb",
    "H100-PCIe-80GB": "h100-pcie-80gb",
    "L40S": "l40s-48gb",
    "MI300X": "mi300x-192gb",
    "MI325X": "mi325x-256gb",
    "MI355X": "mi355x-288gb",
    "RTX4090-24GB": "rtx-4090-24gb",
    "V100-SXM-32GB": "v100-sxm-32gb",
    "V100-SXM3-32GB": "v100-sxm-32gb",
}
_ENGINES = (
    (re.compile("composer"), "fsdp"),
    (re.compile("torchtitan.compile|AutoModel|Meta internal|lit-gpt"), "fsdp2-compiled"),
    (re.compile("torchtitan"), "fsdp2"),
    (re.compile("flash-attn"), "ddp"),
    (re.compile("nanotron"), "nanotron"),
    (re.compile("^DeepSpeed.*HF$"), "deepspeed-eager"),
    (re.compile("^DeepSpeed"), "deepspeed"),
)
_FABRICS = (("Omni-Path", "omni-path"), ("RoCE", "roce"), ("EFA", "efa"))
_OMNI_PATH_BYTES_PER_SECOND = 6.25e9
"""Four ports of 100 Gb/s for eight GPUs."""
_SHARED_AND_DENSE = {"deepseek-v3": (1, 3), "kimi-k2": (1, 1), "moonlight-16b-a3b": (2, 1)}
"""Shared experts and layers without experts, from the models' own configurations; no column tells them."""
_INTERLEAVED = ("Meta internal",)
"""Frameworks beside Megatron-Core that interleave stages and split norms where a row does not say."""
_LATENT = {
    "deepseek-v3": Latent(query_rank=1536, kv_rank=512, plain=128, rotary=64, value=128),
    "kimi-k2": Latent(query_rank=1536, kv_rank=512, plain=128, rotary=64, value=128),
    "moonlight-16b-a3b": Latent(query_rank=0, kv_rank=512, plain=128, rotary=64, value=128),
}
_BRIDGE = re.compile(r"Megatron-Bridge (\d\d\.\d\d)")
_FUSED_SINCE = 26.06
"""The release of Megatron-Bridge whose grouped products are fused on Blackwell."""
_MICRO_BATCHES = (1, 2, 4, 8)
_RECOMPUTE = {
    "full": "full",
    "selective": "selective",
    "selective(core_attn)": "selective",
    "selective(op)": "operators",
    "selective(layer)": "alternate",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """A row: its job, None where the cost model has no such machine, and its step time in seconds."""

    row: dict[str, str]
    job: Job | None
    seconds: float
    why: str = ""

    @property
    def group(self) -> str:
        """What it is scored with."""
        assert self.job is not None, "grouped once it has a job"
        if self.row["arch"] != "dense":
            return "MoE"
        if self.job.machine.generation.startswith("blackwell"):
            return "Blackwell dense"
        return "dense 16-bit" if self.job.precision in ("bf16", "fp16") else "dense fp8"

    def predicted(self, constants: Calibration | None = None) -> float:
        """Return the predicted step time; a micro-batch that nothing tells is the fastest one."""
        assert self.job is not None, "asked of rows with a job"
        told = self.row["micro_batch"] or self.job.engine == "ddp" or self.job.micro > 1
        if told or (self.row["framework"].startswith("torchtitan") and self.job.pp > 1):
            return step_seconds(self.job, constants).total
        samples = self.job.global_batch / self.job.dp
        sizes = [size for size in _MICRO_BATCHES if samples % size == 0] or [1]
        return min(step_seconds(replace(self.job, micro=size), constants).total for size in sizes)


def read(path: Path) -> Iterator[Measured]:
    """Yield the rows of a file that are fit for scoring."""
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["scorable"] == "1":
                yield _measured(row)


def _measured(row: dict[str, str]) -> Measured:
    try:
        job = _job(row)
    except (KeyError, ValueError) as error:
        return Measured(row, None, 0.0, f"no such machine or shape: {error}")
    return Measured(row, job, _seconds(row, job))


def _job(row: dict[str, str]) -> Job:
    engine = _engine(row)
    machine = _machine(row)
    tp, pp, cp = (int(_number(row, key, 1)) for key in ("tp", "pp", "cp"))
    gpus = int(_number(row, "n_gpus"))
    dp = int(_number(row, "dp", gpus / (tp * pp * cp)))
    layers, batch = int(_number(row, "layers")), int(_number(row, "global_batch"))
    vp, ep = int(_number(row, "vp", 1)), int(_number(row, "ep", 1))
    interleaves = (
        engine.startswith(("megatron-core", "megatron-lm", "nemo")) or row["framework"] in _INTERLEAVED
    )
    if pp > 1 and not row["vp"] and interleaves:
        vp = max(1, layers // pp)
    usual = max(1, batch // dp // 4) if engine == "ddp" else 1
    if pp > 1 and row["framework"].startswith("torchtitan"):
        # As many micro-batches as stages, two stages a rank where it interleaves, unless told otherwise.
        vp = int(_number(row, "vp", 2))
        usual = max(1, batch // (dp * pp * vp))
    micro = int(_number(row, "micro_batch", usual))
    return Job(
        work=_work(row),
        machine=machine,
        engine=engine,
        gpus=gpus,
        tp=tp,
        pp=pp,
        dp=dp,
        micro=micro,
        global_batch=batch,
        precision=_precision(row["precision"]),
        vp=vp,
        cp=cp,
        ep=ep,
        expert_tp=1 if ep > 1 else None,
        zero=int(_number(row, "zero_stage", 0)),
        recompute=_RECOMPUTE.get(row["recompute"], "none"),
        sequence_parallel=(row["sequence_parallel"] or str(int(interleaves))) == "1",
        flash_attention=row["flash_attn"] != "0",
        offload="offload" in row["fsdp"].lower(),
    )


def _work(row: dict[str, str]) -> Work:
    heads = int(_number(row, "heads"))
    hidden = int(_number(row, "hidden"))
    experts = None
    if row["n_experts"]:
        width = int(_number(row, "moe_ffn", _number(row, "ffn_hidden")))
        shared, plain = _SHARED_AND_DENSE.get(row["model"], (0, 0))
        experts = Experts(int(_number(row, "n_experts")), int(_number(row, "topk")), width, shared, plain)
    return Work(
        layers=int(_number(row, "layers")),
        hidden=hidden,
        heads=heads,
        kv_heads=int(_number(row, "kv_heads", heads)),
        head_dim=int(_number(row, "head_dim", hidden / heads)),
        ffn_hidden=int(_number(row, "ffn_hidden", 4 * hidden)),
        vocab=int(_number(row, "vocab", 50304)),
        seq_len=int(_number(row, "seq")),
        gated=row["swiglu"] == "1",
        experts=experts,
        latent=_LATENT.get(row["model"]),
    )


def _machine(row: dict[str, str]) -> Machine:
    fabric = next((name for word, name in _FABRICS if word in row["interconnect"]), "infiniband")
    machine = machine_of(GPUS[row["gpu_type"]], int(_number(row, "gpus_per_node", 8)), fabric)
    assert machine is not None, "every name of GPUS has rates"
    if fabric == "omni-path":
        machine = replace(machine, network_bytes_per_second=_OMNI_PATH_BYTES_PER_SECOND)
    return machine


def _engine(row: dict[str, str]) -> str:
    framework = row["framework"]
    known = next((name for pattern, name in _ENGINES if pattern.search(framework)), None)
    if known is not None:
        return known
    if row["flash_attn"] != "1" and "CI" not in framework:
        return "megatron-deepspeed" if framework.startswith("Megatron-DeepSpeed") else "megatron"
    if framework.startswith(("NeMo 24", "Megatron-Core 0.8")):
        return "megatron-core-2024"
    if framework.startswith("Megatron-LM"):
        return "megatron-lm"
    if framework.startswith("NeMo (dgxc"):
        return "nemo"
    bridge = _BRIDGE.match(framework)
    return "megatron-core-2606" if bridge and float(bridge[1]) >= _FUSED_SINCE else "megatron-core"


def _precision(text: str) -> str:
    if text in ("bf16", "fp16"):
        return text
    return "bf16" if text == "amp_bf16" else "fp4" if "fp4" in text else "fp8"


def _seconds(row: dict[str, str], job: Job) -> float:
    if row["score_metric"] != "tflops" and row["step_time_s"]:
        return float(row["step_time_s"])
    return _operations(row, job) / (float(row["tflops_per_gpu"]) * 1e12 * job.gpus)


def _operations(row: dict[str, str], job: Job) -> float:
    """Return the operations that the source counts in a step: attention whole or its causal half."""
    work, said = job.work, f"{row['flops_convention']} {row['tflops_kind']}"
    attention = 4 * work.seq_len * work.score_width * (0.5 if "causal" in said else 1.0)
    experts = work.experts
    width = (experts.chosen + experts.shared) * experts.width if experts else work.ffn_hidden
    matrices = 2 * work.attention_parameters
    matrices += 2 * (3 if work.gated else 2) * work.hidden * width
    again = "x4/3" in said or ("hardware" in said and job.recompute == "full")
    passes = 4 if again else 3
    a_token = work.layers * (matrices + attention) * passes + 6 * work.hidden * work.vocab
    return a_token * work.seq_len * job.global_batch


def _number(row: dict[str, str], key: str, default: float | None = None) -> float:
    if row[key]:
        return float(row[key])
    if default is None:
        raise ValueError(f"{key} is not given")
    return default
