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
from tests.support.run_cases import assert_equals_one_process, run_all

ON_DISK = {"optimizer": "nvme", "path": "disk"}
ALL_ON_DISK = {**ON_DISK, "parameters": "nvme"}
# Half of the decaying weights is more than the megabyte that the library swaps at least; norms are less.
WIDE = {"hidden": 128, "ffn_hidden": 2048}
CASES: dict[str, dict[str, Any]] = {
    "optimizer": {"zero": 3, "model": WIDE, "offload": ON_DISK},
    "parameters-on-cpu": {"zero": 3, "model": WIDE, "offload": {**ON_DISK, "parameters": "cpu"}},
    "hugging-face": {"trainer": "transformers", "zero": 3, "model": WIDE, "offload": ON_DISK},
    "parameters": {"zero": 3, "model": WIDE, "offload": ALL_ON_DISK},
    "parameters-alone": {"zero": 3, "model": WIDE, "offload": {**ALL_ON_DISK, "optimizer": "cpu"}},
    # The table of words is held while blocks are recomputed.
    "hugging-face-parameters": {
        "trainer": "transformers",
        "zero": 3,
        "model": {**WIDE, "ffn_hidden": 4096, "tied": True, "vocab": 4100},
        "offload": ALL_ON_DISK,
        "train": {"recompute": "full"},
        "optimizer": {"lr": 1e-3},
    },
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
        return run_all(folder, CASES)


@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_one_process_and_a_checkpoint_changes_none(told: dict[str, Any], name: str):
    assert_equals_one_process(told[name], CASES[name])


def test_states_were_on_the_disk(told: dict[str, Any], folder: Path):
    assert told
    swapped = [path.stat().st_size for path in folder.glob("disk/zero_stage_3/optimizer/rank*/*.swp")]
    assert max(swapped, default=0) > 1 << 20


def test_parameters_were_on_the_disk_in_their_precision(told: dict[str, Any], folder: Path):
    assert told
    # Those of the last case: a gate and an up of each of two layers, and a table, which half of is a rank's.
    (parameters,) = folder.glob("disk/zero_stage_3/*params")
    assert parameters.name == "float32params"
    for rank in (0, 1):
        swapped = sorted(path.stat().st_size for path in parameters.glob(f"rank{rank}/*.swp"))
        assert swapped == [4 * 4096 * 128 // 2] * 6 + [4 * 4100 * 128 // 2]
