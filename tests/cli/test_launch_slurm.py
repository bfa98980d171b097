"""What `dsforge launch` would hand to Slurm, on a machine without it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.recipes import SMALL, write

Cli = Callable[..., Any]
LAUNCH = "launch: {launcher: slurm, env_from: [HF_TOKEN], slurm: {partition: gpu}}\n"


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def test_a_dry_run_shows_the_submission_and_what_is_missing(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("HF_TOKEN", "s3cret")
    shown = cli(
        "launch", write(tmp_path, SMALL + LAUNCH), "--dry-run", "--json", "--runs", tmp_path / "50% runs"
    )
    assert shown.code == 0, shown.err
    run, root = shown.json["run"], str(tmp_path)
    assert shown.json["command"] == [
        "sbatch",
        "--parsable",
        f"--output={run}/job.log".replace("%", "%%"),
        f"--chdir={root}",
        f"{run}/bundle/launch.sh",
    ]
    environ = shown.json["environment"]
    assert (environ["DSFORGE_RUN"], environ["DSFORGE_ROOT"]) == (run, root)
    assert environ["DSFORGE_PYTHON"] == sys.executable
    assert "s3cret" not in shown.out
    assert "slurm-job" in shown.json["written"]
    told = [refusal["message"] for refusal in shown.json["refusals"]]
    assert any("sbatch is not installed" in message for message in told)
    assert not (tmp_path / "50% runs").exists()


def test_nothing_is_left_to_itself_that_is_supervised_here(cli: Cli, tmp_path: Path):
    refused = cli("launch", write(tmp_path, SMALL), "--detach", "--runs", tmp_path / "runs")
    assert refused.code == 2
    assert "DSF242" in refused.err
    assert not (tmp_path / "runs").exists()
