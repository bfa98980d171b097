"""The figures that people quote, exact counts beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.recipes import ROOT, write

THIRTEEN_B = """\
version: 1
model: 13B
cluster: {nodes: 1, gpus_per_node: 8, gpu: a100-sxm-80gb}
parallel: {zero: 0}
batch: {global: 64, micro: 1, seq_len: 2048}
train: {precision: fp32}
"""


def test_175b_over_tp_8_and_pp_8(cli: Callable[..., object]):
    shown = cli("plan", "--json", ROOT / "recipes" / "gpt3-175b-1024a100.yaml")
    assert shown.code == 0
    nominal = shown.json["nominal"]
    # 175e9 x (2 + 12) B = 2,450 GB; / 64 = 38.28125 GB a GPU.
    assert nominal["model_state_bytes"] == 2.45e12
    assert nominal["bytes_per_gpu"] == 3.828125e10
    assert nominal["model_parallel_ranks"] == 64
    assert nominal["bytes_per_parameter"] == 14
    layout = shown.json["layout"]
    assert (layout["tp"], layout["pp"], layout["dp"], layout["world_size"]) == (8, 8, 16, 1024)
    assert [stage["layers"] for stage in layout["stages"]] == [12] * 8
    assert shown.json["parameters"]["total"] == 174_604_259_328


def test_13b_in_fp32_needs_208_gb_and_is_refused_with_its_numbers(cli: Callable[..., object], tmp_path: Path):
    shown = cli("plan", "--json", write(tmp_path, THIRTEEN_B))
    assert shown.code == 1
    assert shown.json["nominal"]["model_state_bytes"] == 2.08e11  # 52 + 52 + 104 GB
    assert shown.json["nominal"]["bytes_per_gpu"] == 2.08e11
    (finding,) = [found for found in shown.json["findings"] if found["severity"] == "error"]
    assert finding["code"] == "DSF160"
    assert "error[DSF160]" in shown.err


def test_13b_with_zero_left_open_is_planned_by_the_lowest_stage_that_fits(
    cli: Callable[..., object], tmp_path: Path
):
    shown = cli("plan", "--json", write(tmp_path, THIRTEEN_B.replace("parallel: {zero: 0}\n", "")))
    assert shown.code == 0
    # 12.85e9 x (4 + 4 + 8) B over 8 ranks: ZeRO-1 116 GB, ZeRO-2 71 GB, ZeRO-3 26 GB.
    assert shown.json["layout"]["zero"] == 3
    assert shown.json["nominal"]["model_state_bytes"] == 2.08e11


def test_a_shape_without_a_name_counts_exactly(cli: Callable[..., object]):
    shown = cli("plan", "--json", ROOT / "recipes" / "smoke.yaml")
    nominal = shown.json["nominal"]
    assert nominal["parameters"] == shown.json["parameters"]["total"] == 250_432
    assert nominal["parameters_source"] == "the exact count"
    assert nominal["bytes_per_parameter"] == 16
