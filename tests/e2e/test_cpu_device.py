"""megatron-core as installed trains on a CPU in the place of CUDA, and goes on from its checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dsforge.rank
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.rank.program import STAND_INS
from tests.support.recipes import ROOT

pytestmark = pytest.mark.e2e

DRIVER = ROOT / "tests" / "external_support" / "core_training.py"
SITE = Path(dsforge.rank.__file__).with_name("site")


def test_a_real_loop_of_megatron_core_trains_and_goes_on(tmp_path):
    full = {
        **os.environ,
        "PYTHONPATH": f"{SITE}{os.pathsep}{ROOT}",
        STAND_INS: json.dumps(flavour_of("megatron-lm").stand_ins),
        "OMP_NUM_THREADS": "1",
    }
    ranks = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*ranks, str(DRIVER), str(tmp_path)],
        env=full,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["0", "1", "2", "3", "2", "3"]
    assert lines[4:] == lines[2:4]  # the same loss and norm of gradients, to the last digit
    first, *_, last = (float(line.split()[1]) for line in lines)
    assert last < first - 0.5
