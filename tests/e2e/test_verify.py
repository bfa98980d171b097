"""Every layout trains to the loss of one plain process; layouts known to be wrong do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsforge.records.streams import Event, parse_line, read_lines
from tests.support import matrix
from tests.support.cells import CELLS, COLUMNS, Cell
from tests.support.needed import need_disk_kernel

pytestmark = pytest.mark.e2e

FP32_TOLERANCE = 1e-5
STEPS = 20

RECIPE = """\
version: 1
model: {layers: 4, hidden: 64, heads: 4, ffn_hidden: 192, vocab: 509}
batch: {global: 16, micro: 2, seq_len: 64}
cluster: {gpu: cpu}
train:
  steps: 20
  eval_every: 8
  eval_samples: 16
  checks: {gradients_every: 4, parameters_every: 7, modules: true}
optimizer: {lr: 2.0e-3, warmup_steps: 2, grad_clip: 0.3}
"""

Verify = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Layouts of one model and batch are held against one run of the one process."""
    return tmp_path_factory.mktemp("references")


@pytest.fixture
def verify(tmp_path: Path, references: Path) -> Verify:
    """Run `dsforge verify` on a cell and return its exit code and what it says."""

    def run(cell: Cell, *words: str, environ: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
        recipe = tmp_path / "layout.yaml"
        recipe.write_text(RECIPE)
        command = [sys.executable, "-m", "dsforge.cli", "verify", str(recipe), *cell.changes(), *words]
        command += ["--json", "--steps", str(STEPS), "--max-ranks", "8"]
        command += ["--runs", str(tmp_path / "runs"), "--references", str(references)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**os.environ, **(environ or {})},
            timeout=900,
            check=False,
        )
        assert done.stdout, done.stderr[-4000:]
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_a_layout_equals_the_reference(
    cell: Cell, verify: Verify, tmp_path: Path, request: pytest.FixtureRequest
):
    on_disk = "nvme" in cell.columns.values()
    if on_disk:
        need_disk_kernel()
    code, result = verify(cell)
    assert code == 0, result
    layout = result["layout"]
    assert layout["attention_dropout"] == layout["dropout"]
    assert {column: json.dumps(layout[column]).strip('"') for column in COLUMNS} == cell.columns
    asked = tuple(change.partition("=")[0] for change in cell.changes())
    assert not [change for change in result["changed"] if change["key"].startswith(asked)]
    assert result["tolerance"] == matrix.tolerance(cell)
    assert len(result["losses"]) == len(result["reference_losses"]) == STEPS
    largest = max(abs(a - b) for a, b in zip(result["losses"], result["reference_losses"], strict=True))
    assert largest == result["max_abs_loss_diff"]
    assert max(largest, result["max_abs_validation_diff"]) <= matrix.tolerance(cell)
    assert (
        list(result["validation_losses"]) == list(result["reference_validation_losses"]) == ["8", "16", "20"]
    )
    assert result["losses"][0] - result["losses"][-1] >= 1.0
    assert result["clipped_steps"] >= 0.8 * STEPS
    if cell.columns["precision"] == "fp32":
        assert largest <= FP32_TOLERANCE
        # Nothing of a parameter is lost between ranks: a shard put in a wrong place is off by about 0.02.
        assert result["max_abs_param_diff"] <= 1e-3
    else:
        assert largest > 0
    if on_disk:
        # Half of the two matrices of the MLP, and of each parameter in them three states.
        (attempt,) = tmp_path.glob("runs/*/attempt-1")
        events = [parse_line(line) for _, line in read_lines(attempt / "events.jsonl")]
        told = [event.data for event in events if isinstance(event, Event) and event.name == "finished"]
        assert max(data.get("disk_bytes", 0) for data in told) > (2 + 6) << 20
    if request.config.getoption("--update-matrix"):
        matrix.update(cell, max(largest, result["max_abs_validation_diff"]))


def test_zero_0_with_a_pipeline_is_refused_and_shown_to_be_wrong(verify: Verify):
    wrong = Cell("wrong-norm", "", "pp=2 zero=0")
    code, refusal = verify(wrong)
    assert code == 1
    assert refusal["error"]["code"] == "DSF121"
    code, result = verify(wrong, "--allow", "DSF121")
    assert code == 1
    assert result["passed"] is False
    assert result["max_abs_loss_diff"] > 10 * FP32_TOLERANCE


def test_a_plainly_split_swiglu_weight_is_found(tmp_path: Path, verify: Verify):
    """The fused [gate; up] weight has stride 2: cut as one block, shards hold only gate or only up."""
    fault = tmp_path / "fault"
    fault.mkdir()
    (fault / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'dsforge.train.main' in sys.orig_argv[1:4]:\n"
        "    from dsforge.train import slicing\n"
        "    right = slicing.shard_rows\n"
        "    slicing.shard_rows = lambda size, shards, index, stride: right(size, shards, index, 1)\n"
    )
    cell = Cell("wrong-shards", "", "tp=2 arch=llama tied=false train.seed=2")
    paths = os.pathsep.join([str(fault), os.environ.get("PYTHONPATH", "")])
    code, result = verify(cell, environ={"PYTHONPATH": paths})
    assert code == 1
    assert result["passed"] is False
    assert result["max_abs_loss_diff"] > 10 * FP32_TOLERANCE
