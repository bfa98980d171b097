"""What the GPU benchmark picks and reckons: sizes by memory, figures from an attempt's records."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dsforge.catalog.tables import find_hardware
from tests.support.recipes import ROOT

GIB = 2**30


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import gpu

    return gpu


def chosen(gpu, number: int, kind: str, memory_bytes: int):
    shape = gpu.SHAPES[number]
    changes = [f"cluster.gpu={kind}"]
    return gpu.first_that_fits(gpu.RECIPE, shape.profile, changes, shape.candidates(), memory_bytes)


@pytest.mark.parametrize(
    ("kind", "memory_bytes", "micro", "layers"),
    [
        ("a100-sxm-40gb", 40 * GIB, 2, 6),
        ("a100-sxm-80gb", 80 * GIB, 8, 15),
        ("h200-sxm-141gb", 140 * GIB, 16, 28),
    ],
)
def test_more_memory_takes_more_samples_or_more_layers(gpu, kind, memory_bytes, micro, layers):
    small, _ = chosen(gpu, 0, kind, memory_bytes)
    assert (small.layers, small.micro) == (22, micro)
    wide, plan = chosen(gpu, 1, kind, memory_bytes)
    assert (wide.layers, wide.micro) == (layers, 4)
    # bf16 under ZeRO-1 on one rank: 2 + 2 + 12 bytes and a sum of gradients in 4.
    assert plan.layout.fullest_rank_bytes == 20 * plan.layout.stages[0].parameters
    one_more = gpu.Candidate(layers + 1, 4)
    shape = gpu.SHAPES[1].profile
    assert gpu.first_that_fits(gpu.RECIPE, shape, [f"cluster.gpu={kind}"], [one_more], memory_bytes) is None


def test_too_little_memory_is_said(gpu, tmp_path):
    device = gpu.Device("Some GPU", "1", 17 * GIB, None)
    assert device.planned_as().name == "v100-sxm-16gb"
    told = gpu.train("fsdp", gpu.SHAPES[0], device, tmp_path, 1.0)
    assert told == {"trainer": "fsdp", "shape": "1b", "failed": "no size of it fits this memory"}
    with pytest.raises(SystemExit, match="too little"):
        gpu.Device("Some GPU", "1", 8 * GIB, None).planned_as()


@pytest.mark.parametrize(
    ("trainer", "zero"),
    [("forge", 1), ("megatron-core", 1), ("transformers", 1), ("fsdp", 3), ("ddp", 0)],
)
def test_every_trainer_has_a_size_of_both_shapes(gpu, trainer, zero):
    h100 = find_hardware("h100-sxm-80gb")
    changes = gpu.changes_for(trainer, gpu.Device(h100.device_names[0], "1", 80 * GIB, h100))
    for shape, least in zip(gpu.SHAPES, (22, 15), strict=True):
        found = gpu.first_that_fits(gpu.RECIPE, shape.profile, changes, shape.candidates(), 80 * GIB)
        assert found is not None
        candidate, plan = found
        assert (plan.trainer, plan.layout.zero, plan.gpu) == (trainer, zero, "h100-sxm-80gb")
        assert candidate.layers >= least


def attempt(folder: Path) -> Path:
    """Ten steps: a slow start, then one every two seconds."""
    times = [0.0, 30.0, 35.0, *(40.0 + 2.0 * step for step in range(7))]
    lines = [json.dumps({"loss": 9.0 - number, "time": time}) for number, time in enumerate(times)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    built = {"name": "built", "data": {"fused": {"attention": "flash"}}}
    finished = {"name": "finished", "data": {"memory": {"allocated": 7, "reserved": 9}}}
    (folder / "events.jsonl").write_text(f"{json.dumps(built)}\n{json.dumps(finished)}\n")
    return folder


def test_the_figures_of_an_attempt(gpu, tmp_path):
    """TinyLlama: 1,100,048,384 parameters, 65,536,000 of them in the input embedding."""
    _, plan = chosen(gpu, 0, "h100-sxm-80gb", 80 * GIB)
    h100 = find_hardware("h100-sxm-80gb")
    device = gpu.Device(h100.device_names[0], "570.1", 80 * GIB, h100)
    found = gpu.figures(plan, device, attempt(tmp_path))
    assert found["parameters"] == 1_100_048_384
    flops = 6 * (1_100_048_384 - 65_536_000) + 12 * 22 * 2048 * 2048
    assert found["flops_per_token"] == flops
    assert found["tokens_per_second"] == 8 * 4 * 2048 / 2.0
    assert found["mfu"] == pytest.approx(flops * 32_768 / 989.4e12, abs=1e-4)
    assert (found["peak_bytes"], found["losses"]) == ({"allocated": 7, "reserved": 9}, [9.0, 0.0])
    unknown = gpu.figures(plan, gpu.Device("Some GPU", "1", 80 * GIB, None), tmp_path)
    assert unknown["mfu"] is None
    lines = gpu.table([{"trainer": "forge", "shape": "1b", **one} for one in (found, unknown)]).splitlines()
    assert f"{found['mfu']:.1%}" in lines[1]
    assert "peak not known" in lines[2]


def test_the_driver_is_asked_for_the_chosen_gpu(gpu, tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\necho "$@" > "$0.asked"\necho "NVIDIA A100-SXM4-80GB, 550.54, 81920"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    device = gpu.first_gpu()
    assert (device.driver, device.memory_bytes) == ("550.54", 80 * GIB)
    assert device.peak_flops("bf16") == 312e12
    assert (tmp_path / "nvidia-smi.asked").read_text().endswith("-i 3\n")
    program.write_text("#!/bin/sh\nexit 6\n")
    with pytest.raises(SystemExit, match="--toy"):
        gpu.first_gpu()


def test_the_script_is_bash():
    subprocess.run(["bash", "-n", str(ROOT / "benchmarks" / "gpu.sh")], check=True)
