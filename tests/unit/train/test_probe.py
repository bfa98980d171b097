"""The probe: the catalogue is what the installed library says, and reads are noted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from dsforge.catalog.engines.deepspeed import known_keys
from dsforge.train.reads import Reads
from tests.support.recipes import ROOT


def probe(*arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dsforge.train.probe", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    return done.stdout


def verdict(config: dict[str, Any], replicas: int = 1) -> dict[str, Any]:
    arguments = ("--config", "-", "--data-parallel", str(replicas))
    answer: dict[str, Any] = json.loads(probe(*arguments, stdin=json.dumps(config)))["verdict"]
    return answer


def test_the_catalogue_is_what_the_installed_library_says():
    pytest.importorskip("deepspeed")
    kept = (ROOT / "dsforge/catalog/engines/deepspeed.yaml").read_text("utf-8")
    assert kept == probe("--as-yaml"), (
        "python -m dsforge.train.probe --as-yaml > dsforge/catalog/engines/deepspeed.yaml"
    )


def test_the_library_judges_a_file():
    pytest.importorskip("deepspeed")
    config = {
        "train_batch_size": 16,
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": 2},
        "bf16": {"enabled": True},
        "bfloat16": {"enabled": True},
        "gradient_clip": 0.5,
        "activation_checkpointing": {"partition_activation": True},
    }
    answer = verdict(config, replicas=4)
    assert answer["accepted"] is True
    assert answer["batch"] == [16, 2, 2]
    assert (answer["stage"], answer["bf16"], answer["fp16"]) == (2, True, False)
    assert answer["gradient_clipping"] == 1.0
    unread = {".".join(path) for path in answer["unread"]}
    assert unread == {"bfloat16", "gradient_clip", "activation_checkpointing.partition_activation"}
    refused = verdict({**config, "zero_optimization": {"stage": 2, "overlap_com": True}})
    assert refused["accepted"] is False
    assert "overlap_com" in refused["reason"]


def test_facts_that_were_measured():
    """The table holds what is known of this version from elsewhere."""
    keys = known_keys()
    assert keys.version == "0.19.8"
    assert {
        "elasticity",
        "curriculum_learning",
        "amp",
        "nebula",
        "zero_optimization.mics_shard_size",
    } <= keys.removed
    unchecked = {
        "activation_checkpointing",
        "checkpoint",
        "flops_profiler",
        "data_types",
        "aio",
        "optimizer",
        "pipeline",
    }
    checked = {"zero_optimization", "fp16", "bf16", "tensorboard", "wandb", "csv_monitor"}
    sections = {name: key.section for name, key in keys.top.keys.items() if key.section is not None}
    assert unchecked | checked <= set(sections)
    assert {name for name in unchecked if sections[name].checked} == set()
    assert {name for name in checked if not sections[name].checked} == set()
    offload = keys.section(["zero_optimization", "offload_optimizer"])
    assert offload is not None
    assert offload.keys["device"].choices == ("none", "cpu", "nvme")
    assert keys.top.keys["gradient_clipping"].default == 1.0
    assert keys.optimizers["adam"]["gpu"]["weight_decay"] == 0.0
    assert keys.optimizers["adam"]["torch"]["weight_decay"] == 0.01


def test_reads_are_noted():
    noted = Reads({"a": {"b": 1, "c": 2}, "d": 3, "e": {"f": 1}, "g": {"h": 1}})
    assert noted.get("a", {}).get("b") == 1
    assert "e" in noted.keys()  # noqa: SIM118 - the library asks this way
    dict(noted["g"].items())
    assert noted.get("nothing", 7) == 7
    assert noted.seen["nothing"] == 7
    assert list(noted.unread()) == [("a", "c"), ("d",), ("e", "f")]
