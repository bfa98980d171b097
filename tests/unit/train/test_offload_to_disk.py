"""States on a disk: trained and resumed as in memory. Needs DeepSpeed's kernel, minutes of compiling."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dsforge.launch.op_cache import DISK, folder_of, ops_dir
from dsforge.rank import ops
from tests.support.replica_ranks import SMALL_SCALE
from tests.support.run_cases import assert_equals_one_process, run_all

pytestmark = pytest.mark.skipif(
    folder_of(DISK) not in ops.built(ops_dir(os.environ)),
    reason="the kernel that reads and writes the disk is not built; `dsforge preflight --build` builds it",
)

ON_DISK = {"optimizer": "nvme", "path": "disk"}
# Half of the decaying weights is more than the megabyte that the library swaps at least; norms are less.
WIDE = {"hidden": 128, "ffn_hidden": 2048}
CASES: dict[str, dict[str, Any]] = {
    "optimizer": {"zero": 3, "model": WIDE, "offload": ON_DISK},
    "parameters-on-cpu": {"zero": 3, "model": WIDE, "offload": {**ON_DISK, "parameters": "cpu"}},
    # At the other rate this shape doubles what fp16 rounds in every step, in memory too.
    "fp16": {"zero": 3, "model": WIDE, "offload": ON_DISK, "train": {"precision": "fp16"}}
    | {"optimizer": {"lr": 1e-3}},
    "hugging-face": {"trainer": "transformers", "zero": 3, "model": WIDE, "offload": ON_DISK},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        # As a launch does: another ninja than the one that built the kernel would build it anew.
        patch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
        patch.setenv("TORCH_EXTENSIONS_DIR", str(ops_dir(os.environ)))
        return run_all(folder, CASES)


@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_one_process_and_a_checkpoint_changes_none(told: dict[str, Any], name: str):
    assert_equals_one_process(told[name], CASES[name])
    scale = SMALL_SCALE if name == "fp16" else None
    assert {step["scale"] for step in told[name]["resumed"]} == {scale}


def test_states_were_on_the_disk(told: dict[str, Any], folder: Path):
    assert told
    swapped = [path.stat().st_size for path in folder.glob("disk/zero_stage_3/optimizer/rank*/*.swp")]
    assert max(swapped, default=0) > 1 << 20
