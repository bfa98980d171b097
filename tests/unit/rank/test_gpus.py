"""GPUs as nvidia-smi prints them, through a stand-in for it."""

from __future__ import annotations

import os
from pathlib import Path

from dsforge.rank.gpus import gpus
from dsforge.records.probe import Gpu

_STAND_IN = """#!/bin/sh
case "$1" in
  --query-gpu=*)
    echo 'GPU-1, NVIDIA H100 80GB HBM3, 550.54.15, 0'
    echo 'GPU-2, NVIDIA H100 80GB HBM3, 550.54.15, 4'
    echo 'GPU-3, Tesla V100-SXM2-16GB, 550.54.15, [N/A]' ;;
  *) echo 'GPU-2, 17, python' ;;
esac
"""


def _environ(folder: Path, script: str) -> dict[str, str]:
    program = folder / "nvidia-smi"
    program.write_text(script)
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_gpus_with_their_errors_and_users(tmp_path: Path):
    found, problem = gpus(_environ(tmp_path, _STAND_IN))
    assert problem is None
    assert found == (
        Gpu("NVIDIA H100 80GB HBM3", "550.54.15", 0, ()),
        Gpu("NVIDIA H100 80GB HBM3", "550.54.15", 4, ("python (pid 17)",)),
        Gpu("Tesla V100-SXM2-16GB", "550.54.15", 0, ()),
    )


def test_why_they_are_not_known(tmp_path: Path):
    broken = "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'; exit 18\n"
    expected = "nvidia-smi: Failed to initialize NVML: Driver/library version mismatch"
    assert gpus(_environ(tmp_path, broken)) == ((), expected)
    assert gpus({"PATH": "/nowhere"}) == ((), "nvidia-smi is not installed")
