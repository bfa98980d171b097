"""States and parameters on a disk: trained and resumed as in memory.

Needs DeepSpeed's kernel, minutes of compiling: `make kernels`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dsforge.launch.op_cache import ops_dir
from tests.support.needed import need_disk_kernel
from tests.support.replica_ranks import SMALL_SCALE
from tests.support.run_cases import STEPS, assert_equals_one_process, run_all

ON_DISK = {"optimizer": "nvme", "path": "disk"}
ALL_ON_DISK = {**ON_DISK, "parameters": "nvme"}
# Half of the decaying weights is more than the megabyte that the library swaps at least; norms are less.
WIDE = {"hidden": 128, "ffn_hidden": 2048}
CASES: dict[str, dict[str, Any]] = {
    "optimizer": {"zero": 3, "model": WIDE, "offload": ON_DISK},
    "parameters-on-cpu": {"zero": 3, "model": WIDE, "offload": {**ON_DISK, "parameters": "cpu"}},
    # At the other rate this shape doubles what fp16 rounds in every step, in memory too.
    "fp16": {"zero": 3, "model": WIDE, "offload": ON_DISK, "train": {"precision": "fp16"}}
    | {"optimizer": {"lr": 1e-3}},
    "parameters": {"zero": 3, "model": WIDE, "offload": ALL_ON_DISK},
    "parameters-alone": {"zero": 3, "model": WIDE, "offload": {**ALL_ON_DISK, "optimizer": "cpu"}},
    # The table of words is held while blocks are recomputed.
    "hugging-face": {
        "trainer": "transformers",
        "zero": 3,
        "model": {**WIDE, "ffn_hidden": 4096, "tied": True, "vocab": 4100},
        "offload": ALL_ON_DISK,
        "train": {"recompute": "full"},
        "optimizer": {"lr": 1e-3},
    },
}
HALF = {"zero": 3, "model": {**WIDE, "ffn_hidden": 4096}, "train": {"precision": "bf16"}}
IN_BF16: dict[str, dict[str, Any]] = {
    "bf16": {**HALF, "offload": ALL_ON_DISK},
    "bf16-on-cpu": {**HALF, "offload": {"optimizer": "cpu", "parameters": "cpu"}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, Any]:
    need_disk_kernel()
    with pytest.MonkeyPatch.context() as patch:
        # As a launch does: another ninja than the one that built the kernel would build it anew.
        patch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
        patch.setenv("TORCH_EXTENSIONS_DIR", str(ops_dir(os.environ)))
        return run_all(folder, CASES | IN_BF16)


@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_one_process_and_a_checkpoint_changes_none(told: dict[str, Any], name: str):
    assert_equals_one_process(told[name], CASES[name])
    scale = SMALL_SCALE if name == "fp16" else None
    assert {step["scale"] for step in told[name]["resumed"]} == {scale}


def test_states_were_on_the_disk(told: dict[str, Any], folder: Path):
    assert told
    swapped = [path.stat().st_size for path in folder.glob("disk/zero_stage_3/optimizer/rank*/*.swp")]
    assert max(swapped, default=0) > 1 << 20


def test_in_bf16_the_disk_changes_nothing(told: dict[str, Any]):
    on_disk, on_cpu = told["bf16"], told["bf16-on-cpu"]
    assert on_disk["steps"] == on_cpu["steps"]
    assert on_disk["steps"][0]["loss"] - on_disk["steps"][-1]["loss"] > 0.05
    assert on_disk["resumed"] == on_disk["steps"][STEPS // 2 :]
    assert on_disk["same_weights"]


@pytest.mark.parametrize(
    ("precision", "sizes"),
    [
        # A gate, an up and a down of each of two layers, the table and the head that is then tied to it.
        ("float32", [4 * 4096 * 128 // 2] * 6 + [4 * 4100 * 128 // 2] * 2),
        # Gate and up in one; what is down has half of that, and is too small.
        ("bfloat16", [2 * 2 * 4096 * 128 // 2] * 2),
    ],
)
def test_parameters_were_on_the_disk_in_their_precision(
    precision: str, sizes: list[int], told: dict[str, Any], folder: Path
):
    assert told
    for rank in (0, 1):
        swapped = folder.glob(f"disk/zero_stage_3/{precision}params/rank{rank}/*.swp")
        assert sorted(path.stat().st_size for path in swapped) == sizes
