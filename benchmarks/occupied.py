"""Published memory measurements as jobs of the cost model: one row of a CSV, one job, one measured figure."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsforge.catalog.tables import find_hardware
from dsforge.cost.job import Experts, Job, Latent, Machine, Work
from dsforge.cost.machine import machine_of
from dsforge.cost.memory import StageMemory, stage_memory
from dsforge.cost.memory.constants import MemoryConstants
from dsforge.layout.shape import padded_vocab

_GPUS = {
    "V100-SXM-32GB": "v100-sxm-32gb",
    "V100-SXM3-32GB": "v100-sxm-32gb",
    "A100-SXM": "a100-sxm-80gb",
    "A100-SXM-80GB": "a100-sxm-80gb",
    "A100-SXM-40GB": "a100-sxm-40gb",
    "H100-SXM-80GB": "h100-sxm-80gb",
    "H100-SXM-96GB-HBM2e-500W": "h100-sxm-96gb",
    "H200-SXM": "h200-sxm-141gb",
    "B200-SXM": "b200-sxm-180gb",
    "B300-SXM": "b300-sxm",
    "GB200": "gb200",
    "GB300": "gb300",
}
_CAPACITY_GIB = {"H100-SXM-96GB-HBM2e-500W": 95.0, "B300-SXM": 268.0, "GB200": 184.0, "GB300": 276.0}
"""Of GPUs that are not in the catalogue's table of hardware."""
_ENGINES = (
    (re.compile("composer|lit-gpt"), "fsdp"),
    (re.compile("torchtitan|AutoModel"), "fsdp2"),
    (re.compile("flash-attn"), "ddp"),
    (re.compile("nanotron"), "nanotron"),
    (re.compile("^DeepSpeed"), "deepspeed"),
    (re.compile("^Megatron-DeepSpeed"), "megatron-deepspeed"),
)
_MODULES = ("core_attn", "layernorm", "mlp", "moe", "moe_act", "mla_up_proj")
_RECOMPUTE = {"full": "full", "selective(op)": "operators", "selective(layer)": "alternate"}
_VOCAB = 50257
"""GPT-2's, where a run's arguments name its tokenizer alone."""
_MOONLIGHT = Latent(query_rank=0, kv_rank=512, plain=128, rotary=64, value=128)
_KNOWN: dict[str, tuple[int, int, Latent | None]] = {"moonlight-16b-a3b": (2, 1, _MOONLIGHT)}
"""Shared experts, dense layers and latent attention, from the models' own configurations."""
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Occupied:
    """A row: its job, None where the cost model has no such thing, and what was measured in bytes."""

    row: dict[str, str]
    job: Job | None
    measured: float | None
    why: str = ""

    @property
    def group(self) -> str:
        """What it is scored with."""
        fact = self.row["fact"]
        if fact in ("fits", "oom"):
            return fact
        if fact == "static":
            return "static"
        return "peak allocated" if self.kind == "allocated" else "reserved / nvidia-smi"

    @property
    def kind(self) -> str:
        """Which figure of a stage was measured."""
        said = self.row["measured_kind"]
        if self.row["fact"] == "static":
            return "static"
        if "nvidia-smi" in said:
            return "device"
        return "reserved" if "reserved" in said else "allocated"

    @property
    def capacity(self) -> float:
        """Bytes of the GPU."""
        name = self.row["gpu_type"]
        if name in _CAPACITY_GIB:
            return _CAPACITY_GIB[name] * GIB
        memory = find_hardware(_GPUS[name]).memory_bytes
        assert memory is not None, "a GPU's memory is known"
        return float(memory)

    def stage(self, constants: MemoryConstants | None = None) -> StageMemory:
        """Return the stage that was measured: the one that the row names, or else the fullest."""
        assert self.job is not None, "asked of rows with a job"
        stages = stage_memory(self.job, constants)
        rank = self.row["rank_note"]
        if rank == "last rank":
            return stages[-1]
        if rank == "rank 0":
            return stages[0]
        return max(stages, key=lambda stage: stage.device)

    def predicted(self, constants: MemoryConstants | None = None) -> float:
        """Return the predicted bytes of what was measured."""
        found: int = getattr(self.stage(constants), self.kind)
        return float(found)

    def fits(self, constants: MemoryConstants | None = None) -> bool:
        """Tell whether the job is predicted to fit its GPU."""
        return self.stage(constants).device <= self.capacity


def read(path: Path) -> Iterator[Occupied]:
    """Yield the rows of a file that are fit for scoring."""
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["scorable"] == "1":
                yield _occupied(row)


def _occupied(row: dict[str, str]) -> Occupied:
    measured = None
    if row["measured_gib"]:
        unit = 1e9 if "10^9" in row["measured_kind"] else GIB
        measured = float(row["measured_gib"]) * unit
    try:
        return Occupied(row, _job(row), measured)
    except (KeyError, ValueError) as error:
        return Occupied(row, None, measured, f"no such machine or shape: {error}")


def _job(row: dict[str, str]) -> Job:
    said: dict[str, Any] = json.loads(row["args_json"] or "{}")
    tp, pp, cp = (int(_number(row, key, 1)) for key in ("tp", "pp", "cp"))
    gpus = int(_number(row, "n_gpus", tp * pp * cp * _number(row, "dp", 1)))
    dp = int(_number(row, "dp", gpus / (tp * pp * cp)))
    vp = int(_number(row, "vp", 1))
    layers, micro = int(_number(row, "layers")), int(_number(row, "micro_batch", 1))
    framework, engine = row["framework"], _engine(row)
    first = _argument(said, "--decoder-first-pipeline-num-layers")
    last = _argument(said, "--decoder-last-pipeline-num-layers")
    layout = said.get("--pipeline-model-parallel-layout")
    if layout:
        parts = _parts(layout)
        vp = len(parts) // pp
        first = sum(part.count("t") for part in parts[::pp])
        last = sum(part.count("t") for part in parts[pp - 1 :: pp])
    zero = int(_number(row, "zero_stage", 3 if engine == "fsdp" else 0))
    if row["fsdp"] == "SHARD_GRAD_OP":
        zero = 2
    if said.get("--use-megatron-fsdp"):
        zero = 3
    backend = said.get("--attention-backend")
    local = said.get("--transformer-impl") == "local"
    unfused = row["flash_attn"] == "0" or backend == "unfused" or (local and backend is None)
    recompute, modules = _recomputed(row, said)
    return Job(
        work=_work(row, said, tp),
        machine=_machine(row),
        engine=engine,
        gpus=gpus,
        tp=tp,
        pp=pp,
        dp=dp,
        micro=micro,
        global_batch=int(_number(row, "global_batch", dp * micro)),
        precision=_precision(row["precision"]),
        vp=vp,
        cp=cp,
        ep=int(_number(row, "ep", 1)),
        zero=zero,
        recompute=recompute,
        recompute_modules=modules,
        recompute_every=_argument(said, "--recompute-num-layers") or 1,
        sequence_parallel=row["sequence_parallel"] == "1",
        flash_attention=not unfused,
        offload="offload" in row["fsdp"].lower(),
        first_layers=first,
        last_layers=last,
        expert_tp=_argument(said, "--expert-tensor-parallel-size") or (1 if "Bridge" in framework else None),
        vp_group=_argument(said, "--microbatch-group-size-per-virtual-pipeline-stage"),
        ends_count=not layout and layers % (pp * vp) != 0 and (layers + 2) % (pp * vp) == 0,
        loss=_loss(row, said),
        lean_optimizer=_lean(row, said),
        fp8_weights=bool(said.get("--fp8-param-gather")),
        deterministic=bool(said.get("--deterministic-mode")),
        fused_layers=not local,
        compiled="+compile" in framework,
        grouped_experts=bool(row["n_experts"]) and (not said or bool(said.get("--moe-grouped-gemm"))),
    )


def _engine(row: dict[str, str]) -> str:
    framework = row["framework"]
    known = next((name for pattern, name in _ENGINES if pattern.search(framework)), None)
    if known == "deepspeed" and row["flash_attn"] == "0":
        # The model is Megatron's: SC21's comparison.
        return "megatron-deepspeed"
    early = framework.startswith("Megatron-LM") and "CI" not in framework and row["flash_attn"] != "1"
    return known or ("megatron" if early else "megatron-core")


def _work(row: dict[str, str], said: dict[str, Any], tp: int) -> Work:
    heads, hidden = int(_number(row, "heads")), int(_number(row, "hidden"))
    megatron = bool(said) or row["framework"].startswith("Megatron-DeepSpeed")
    ffn = int(_number(row, "ffn_hidden", 4 * hidden))
    if said.get("--swiglu") and "--ffn-hidden-size" not in said:
        # Megatron's default for gated MLPs: megatron/training/arguments.py.
        ffn = int(4 * hidden * 2 / 3 / 64) * 64
    experts, known = None, _KNOWN.get(row["model"], (0, 0, None))
    if row["n_experts"]:
        width = int(_number(row, "moe_ffn", ffn))
        shared = _argument(said, "--moe-shared-expert-intermediate-size") or 0
        experts = Experts(
            int(_number(row, "n_experts")),
            int(_number(row, "topk")),
            width,
            shared / width or known[0],
            _dense_layers(said.get("--moe-layer-freq", "")) or known[1],
        )
    latent = known[2]
    if said.get("--multi-latent-attention"):
        keys = ("--q-lora-rank", "--kv-lora-rank", "--qk-head-dim", "--qk-pos-emb-head-dim", "--v-head-dim")
        latent = Latent(*(_argument(said, key) or 0 for key in keys))
    divisor = _argument(said, "--make-vocab-size-divisible-by") or 128
    vocab = int(_number(row, "vocab", _VOCAB))
    learned = megatron and said.get("--position-embedding-type", "learned") == "learned"
    return Work(
        layers=int(_number(row, "layers")),
        hidden=hidden,
        heads=heads,
        kv_heads=int(_number(row, "kv_heads", heads)),
        head_dim=int(_number(row, "head_dim", _argument(said, "--kv-channels") or hidden / heads)),
        ffn_hidden=ffn,
        vocab=padded_vocab(vocab, tp, divisor) if megatron else vocab,
        seq_len=int(_number(row, "seq")),
        gated=row["swiglu"] == "1",
        experts=experts,
        tied=megatron and not said.get("--untie-embeddings-and-output-weights"),
        bias=megatron and not said.get("--disable-bias-linear"),
        norm_bias=megatron and said.get("--normalization") != "RMSNorm",
        positions=int(_argument(said, "--max-position-embeddings") or _number(row, "seq")) if learned else 0,
        dropout=megatron and said.get("--hidden-dropout") != 0.0,
        latent=latent,
        mtp=_argument(said, "--mtp-num-layers") or 0,
    )


def _recomputed(row: dict[str, str], said: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return the kind of recomputation, and of a selective one what it recomputes."""
    told = row["recompute"]
    if told in _RECOMPUTE:
        return _RECOMPUTE[told], ("core_attn",)
    if not told.startswith("selective"):
        return "none", ("core_attn",)
    named = re.findall(r"\w+", told.partition("(")[2]) or re.findall(
        r"\w+", said.get("--recompute-modules", "")
    )
    if "fine_grained_offloading" in row["id"]:
        # A run's name tells what its arguments do not: attention's scores go to the host.
        named.append("core_attn")
    return "selective", tuple(named) or ("core_attn",)


def _loss(row: dict[str, str], said: dict[str, Any]) -> str:
    if "Liger" in row["framework"] or row["notes"] == "liger":
        return "chunked"
    return "compiled" if said.get("--cross-entropy-loss-fusion") else "plain"


def _lean(row: dict[str, str], said: dict[str, Any]) -> bool:
    """Tell whether sums and moments are in 16 bits: as arguments say, and in Bridge's recipes."""
    if said.get("--use-precision-aware-optimizer"):
        return said.get("--exp-avg-dtype") in ("bf16", "fp16")
    return row["framework"] == "Megatron-Bridge"


def _machine(row: dict[str, str]) -> Machine:
    machine = machine_of(_GPUS[row["gpu_type"]], int(_number(row, "gpus_per_node", 8)))
    assert machine is not None, "every name of _GPUS has rates"
    return machine


def _precision(text: str) -> str:
    if text in ("bf16", "fp16"):
        return text
    return "bf16" if text == "amp_bf16" else "fp8"


def _dense_layers(pattern: str) -> int:
    found = re.match(r"\(\[0\]\*(\d+)", str(pattern))
    return int(found[1]) if found else 0


def _parts(layout: str) -> list[str]:
    """Return the letters of each virtual stage of a Megatron layout such as `Et*3|(tt|)*6mL`."""
    group = re.compile(r"\(([^()]*)\)\*(\d+)")
    while found := group.search(layout):
        layout = layout[: found.start()] + found[1] * int(found[2]) + layout[found.end() :]
    layout = re.sub(r"(\w)\*(\d+)", lambda one: one[1] * int(one[2]), layout)
    return layout.split("|")


def _argument(said: dict[str, Any], key: str) -> int | None:
    return int(said[key]) if key in said else None


def _number(row: dict[str, str], key: str, default: float | None = None) -> float:
    if row[key]:
        return float(row[key])
    if default is None:
        raise ValueError(f"{key} is not given")
    return default
