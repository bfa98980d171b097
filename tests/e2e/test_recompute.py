"""Recomputation changes what is kept and what runs twice, and not one bit of the training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.recompute_probe import ENGINES, STEPS

pytestmark = pytest.mark.e2e

LAYERS, MICRO_BATCHES = 4, 2 * STEPS
INPUT_BYTES = 2 * 32 * 64 * 4 + 2 * 8
"""Of a block and micro-batch: hidden states of 2 samples, 32 tokens, width 64 in fp32; two ids."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict]]:
    """What the probe counted, with dropout of both kinds: {engine: {mode: figures}}."""
    out: Path = tmp_path_factory.mktemp("probe") / "found.json"
    world = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.recompute_probe", str(out)],
        env={**os.environ, **world, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(out.read_text())


@pytest.mark.parametrize(("engine", "zero"), ENGINES, ids=str)
def test_recomputation_happens_saves_memory_and_changes_nothing(found, engine, zero):
    modes = found[f"{engine} {zero}"]
    none = modes["none"]
    assert none["losses"][1] < none["losses"][0]
    for figures in modes.values():
        assert (figures["losses"], figures["grad_norms"]) == (none["losses"], none["grad_norms"])
    once = LAYERS * MICRO_BATCHES
    runs = {mode: (figures["layers"], figures["attentions"]) for mode, figures in modes.items()}
    twice = dict.fromkeys(("full 1", "full 2", "full 3"), (2 * once, 2 * once))
    assert runs == {"none": (once, once), "selective": (once, 2 * once), **twice}
    kept = {mode: figures["kept_bytes"] for mode, figures in modes.items()}
    assert kept["none"] > kept["selective"] > 4 * kept["full 1"]
    # Four layers are four blocks of one, two of two, or one of three and one of one.
    two_blocks = 2 * INPUT_BYTES * MICRO_BATCHES
    assert kept["full 1"] - kept["full 2"] == kept["full 1"] - kept["full 3"] == two_blocks
