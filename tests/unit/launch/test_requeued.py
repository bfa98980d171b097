"""A job that Slurm has queued again finds the run that it began."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dsforge.base import lease
from dsforge.launch.create import create_run
from dsforge.launch.requeued import requeued_run
from dsforge.launch.types import LaunchRequest
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import RunState, write_state
from tests.launch_support.bundles import make_bundle
from tests.launch_support.plans import make_plan
from tests.launch_support.run_folders import myself


def request(root: Path, environ: dict[str, str], name: str = "tiny") -> LaunchRequest:
    plan = make_plan(name=name)
    return LaunchRequest(plan, make_bundle(plan), root / "runs", root, "tiny.yaml", "", (), environ)


def begun(asked: LaunchRequest, time: float) -> RunDir:
    run_dir = create_run(asked)
    name = run_dir.path.name
    write_state(run_dir.state, RunState(name, "tiny", "running", 1, "h", "", myself(), time))
    return run_dir


def test_the_newest_run_of_the_same_job_and_plan_goes_on(tmp_path: Path):
    first = request(tmp_path, {"SLURM_JOB_ID": "7"})
    begun(first, 1.0)
    newest = begun(first, 2.0)
    begun(request(tmp_path, {"SLURM_JOB_ID": "8"}), 3.0)
    begun(request(tmp_path, {"SLURM_JOB_ID": "7"}, "another"), 4.0)
    begun(request(tmp_path, {}), 5.0)
    again = replace(first, environ={"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"})
    assert requeued_run(again) == newest
    assert requeued_run(first) is None


@pytest.mark.parametrize(
    "environ", [{}, {"SLURM_RESTART_COUNT": "1"}, {"SLURM_JOB_ID": "x", "SLURM_RESTART_COUNT": "1"}]
)
def test_outside_of_such_a_job_there_is_none(tmp_path: Path, environ: dict[str, str]):
    begun(request(tmp_path, {}), 1.0)
    assert requeued_run(request(tmp_path, environ)) is None


def test_a_run_that_is_supervised_is_left_alone(tmp_path: Path):
    first = request(tmp_path, {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"})
    run_dir = begun(first, 1.0)
    with lease.hold(run_dir.lease):
        assert requeued_run(first) is None
    assert requeued_run(first) == run_dir
