import struct
from pathlib import Path

import numpy as np
import pytest

from dsforge.plan.types import Plan


def plan_value(**changes: object) -> dict:
    """A plan of a two-layer model; `changes` replace keys of sections, as section__key=value."""
    stages = [
        {
            "stage": 0,
            "first_layer": 0,
            "layers": 2,
            "has_embedding": True,
            "has_head": True,
            "parameters": 0,
            "parameters_by_component": {},
            "state_bytes_per_rank": {},
            "fp32_gradient_sum_bytes_per_rank": 0,
        }
    ]
    value: dict = {
        "dsforge_version": "0",
        "name": "unit",
        "trainer": "forge",
        "accelerator": "cpu",
        "gpu": "cpu",
        "model": {
            "name": "unit",
            "arch": "llama",
            "layers": 2,
            "hidden": 16,
            "heads": 4,
            "kv_heads": 2,
            "head_dim": 4,
            "ffn_hidden": 24,
            "vocab": 61,
            "padded_vocab": 128,
            "max_positions": 8,
            "tied": False,
            "norm": "rmsnorm",
            "norm_eps": 1e-5,
            "activation": "swiglu",
            "position": "rope",
            "rope_theta": 10000.0,
            "linear_bias": False,
            "qkv_bias": False,
            "qk_norm": False,
            "init_std": 0.02,
        },
        "parameters": {"total": 0, "by_component": {}},
        "layout": {
            "tp": 1,
            "pp": 1,
            "dp": 1,
            "world_size": 1,
            "nodes": 1,
            "gpus_per_node": 1,
            "zero": 0,
            "schedule": "1f1b",
            "partition": "uniform",
            "engine": "module",
            "stages": stages,
        },
        "batch": {"global_size": 4, "micro": 2, "accumulation_steps": 2, "seq_len": 8},
        "train": {
            "steps": 3,
            "eval_every": 0,
            "eval_samples": 0,
            "precision": "fp32",
            "recompute": "none",
            "seed": 7,
        },
        "optimizer": {
            "type": "adamw",
            "lr": 0.01,
            "min_lr": 0.001,
            "lr_schedule": "cosine",
            "warmup_steps": 2,
            "weight_decay": 0.1,
            "betas": [0.9, 0.95],
            "eps": 1e-8,
            "grad_clip": 0.3,
        },
        "data": {
            "train": [{"weight": 1.0, "prefix": "corpus"}],
            "valid": [],
            "builtin_vocab": None,
            "tokenizer": None,
            "workers": 0,
        },
        "checkpoint": {"dir": None, "every_steps": 0, "keep": 0, "resume": "auto"},
        "launch": {
            "launcher": "local",
            "env": {},
            "env_from": [],
            "restarts": 0,
            "watchdog_seconds": 60,
            "rendezvous_timeout_seconds": 60,
            "collective_timeout_seconds": 60,
            "stop_timeout_seconds": 60,
        },
        "sinks": [],
        "hostfile": None,
        "nominal": {
            "parameters": 0,
            "parameters_source": "unit",
            "bytes_per_parameter": 16,
            "bytes_formula": "unit",
            "model_state_bytes": 0,
            "model_parallel_ranks": 1,
            "bytes_per_gpu": 0,
        },
        "decisions": [],
        "findings": [],
    }
    for path, new in changes.items():
        section, key = path.split("__")
        value.setdefault(section, {})[key] = new
    return value


@pytest.fixture
def make_plan():
    return lambda **changes: Plan.model_validate(plan_value(**changes))


def write_corpus(prefix: Path, sequences: list[list[int]], code: int = 8, dtype: str = "<u2") -> Path:
    """Write a Megatron data set by the format's description, apart from the code under test."""
    lengths = [len(s) for s in sequences]
    width = np.dtype(dtype).itemsize
    positions = [sum(lengths[:i]) * width for i in range(len(lengths))]
    prefix.with_suffix(".bin").write_bytes(b"".join(np.array(s, dtype).tobytes() for s in sequences))
    prefix.with_suffix(".idx").write_bytes(
        b"MMIDIDX\x00\x00"
        + struct.pack("<QBQQ", 1, code, len(sequences), len(sequences) + 1)
        + struct.pack(f"<{len(lengths)}i", *lengths)
        + struct.pack(f"<{len(positions)}q", *positions)
        + struct.pack(f"<{len(lengths) + 1}q", *range(len(lengths) + 1))
    )
    return prefix


@pytest.fixture
def make_corpus(tmp_path):
    return lambda sequences, **options: write_corpus(tmp_path / "corpus", sequences, **options)
