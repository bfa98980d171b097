"""What Slurm gives and takes while a run lasts: a job queued again, a host of a job with one to spare."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import read_state
from tests.cluster.conftest import Slurm
from tests.cluster.runs import parent_of
from tests.cluster.test_launch import gone_within
from tests.cluster.test_slurm_launch import (
    EVERYTHING_DOWN_SECONDS,
    PATIENCE_SECONDS,
    TINY,
    launched,
    recipe_for,
)

pytestmark = pytest.mark.cluster

SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --partition=train --requeue --open-mode=append --output={folder}/log
cd {folder}
exec {python} -m tests.launch_support.as_job recipe.yaml
"""


def wait(ready, folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not ready():
        assert time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.1)


def test_a_script_of_the_users_own_goes_on_in_its_run_when_it_is_queued_again(slurm: Slurm, tmp_path: Path):
    recipe_for(tmp_path, env_from=[])
    (tmp_path / "job.sh").write_text(SCRIPT.format(folder=tmp_path, python=sys.executable))
    job = slurm.run("sbatch", "--parsable", tmp_path / "job.sh").strip()
    try:
        wait(lambda: list(tmp_path.glob("runs/*/attempt-1/metrics.jsonl")), tmp_path)
        slurm.run("scontrol", "requeue", job)
        wait(lambda: slurm.job(job)["JobState"] == "PENDING", tmp_path)
        time.sleep(3)  # within the same second its nodes still refuse it, as killed
        slurm.run("scontrol", "update", f"jobid={job}", "starttime=now")
        wait(lambda: list(tmp_path.glob("runs/*/attempt-2/metrics.jsonl")), tmp_path)
        (folder,) = (tmp_path / "runs").glob("[!.]*")
        state = read_state(RunDir(folder).state)
    finally:
        slurm.run("scancel", job, check=False)
    assert gone_within(folder.name, EVERYTHING_DOWN_SECONDS)
    assert state is not None
    (restart,) = state.restarts
    assert (state.attempt, restart.requeued) == (2, True)
    assert restart.why.startswith("the job was queued again; ")


def test_a_jobs_spare_takes_the_place_of_a_lost_host(slurm: Slurm, tmp_path: Path):
    recipe = recipe_for(tmp_path, env={"TINY_STEPS": "30"}, restarts=1)
    one_node = recipe.read_text().replace("nodes: 2,", "nodes: 1, spares: 1,").replace("dp: 2", "dp: 1")
    recipe.write_text(one_node)
    with launched(slurm, recipe, *TINY, str(recipe)) as one:
        one.wait_for_a_step()
        keeper = parent_of(parent_of(one.trainer(0)))
        assert (keeper / "cmdline").read_bytes().startswith(b"slurmstepd")
        os.kill(int(keeper.name), signal.SIGKILL)
        one.wait_for_a_step(attempt=2)
        environ = (one.trainer(0, attempt=2) / "environ").read_bytes().split(b"\0")
        told = one.end()
        hosts = [one.run_dir.attempt(number).hostfile.read_text() for number in (1, 2)]
    assert b"SLURMD_NODENAME=node2" in environ
    assert hosts == ["node1 slots=1\n", "node2 slots=1\n"]
    assert (one.process.returncode, told["attempts"]) == (0, 2)
