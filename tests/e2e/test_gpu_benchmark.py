"""The GPU benchmark's logic on a CPU: a size that fits, a real run, a table and one JSON object."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.recipes import ROOT

pytestmark = pytest.mark.e2e


def test_the_toy_shape_is_trained_and_reported():
    done = subprocess.run(
        [str(ROOT / "benchmarks" / "gpu.sh"), "--toy", "--trainer", "forge", "--trainer", "ddp"],
        capture_output=True,
        text=True,
        env={**os.environ, "DSFORGE_PYTHON": sys.executable},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    toy, whole = told["shapes"]
    # One layer and one sample fewer than asked for: that is what 7 MB hold.
    assert (toy["layers"], toy["batch"]["micro"]) == (3, 1)
    layer = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 176 + 2 * 64
    assert toy["parameters"] == 3 * layer + 64 + 2 * 512 * 64
    multiplied = toy["parameters"] - 512 * 64
    assert toy["flops_per_token"] == 6 * multiplied + 12 * 3 * 64 * 64
    assert toy["planned_state_bytes"] == 20 * toy["parameters"]
    assert [toy["trainer"], whole["trainer"]] == ["forge", "ddp"]
    # Weights in fp32, no sum of gradients beside them.
    assert whole["planned_state_bytes"] == 16 * whole["parameters"]
    assert toy["tokens_per_second"] > 0
    assert whole["tokens_per_second"] > 0
    assert toy["mfu"] is None
    assert toy["fused"]["optimizer"] == "torch.optim.adamw.AdamW"
    assert "6 N" in told["flop_convention"]
    assert "peak not known" in done.stderr
