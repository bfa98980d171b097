"""What may befall a run on several hosts: named, down on all of them in half a minute, and back if it may be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsforge.records.streams import MetricsLine
from tests.cluster.hosts import Cluster
from tests.cluster.runs import parent_of, trainer_of
from tests.cluster.test_launch import (
    EVERYTHING_DOWN_SECONDS,
    LAUNCHERS,
    OTHERS,
    Launched,
    environ_of,
    gone_within,
    launched,
    marked,
    recipe_for,
)

pytestmark = pytest.mark.cluster

Report = Callable[[str, object], None]
ALL = LAUNCHERS + OTHERS


@pytest.fixture
def down(record_property: Report) -> Callable[..., None]:
    """Wait for the processes of a run, or of one of its attempts, to be gone everywhere, and note how long."""

    def wait(fault: str, name: str, value: str, since: float) -> None:
        deadline = time.monotonic() + EVERYTHING_DOWN_SECONDS
        while marked(name, value):
            assert time.monotonic() < deadline, fault
            time.sleep(0.1)
        record_property("seconds until everything is down", f"{fault}: {time.monotonic() - since:.1f}")

    return wait


def tiny(cluster: Cluster, folder: Path, launcher: str, **launch: Any) -> Path:
    folder.mkdir(exist_ok=True)
    return recipe_for(cluster, folder, launcher=launcher, env={"TINY_STEPS": "0"}, **launch)


def attempt_of(one: Launched, number: int) -> str:
    return str(one.run_dir.attempt(number).path)


@pytest.mark.parametrize("launcher", ALL)
def test_a_run_comes_back_from_a_killed_rank_and_a_cut_network_and_is_cancelled(
    cluster: Cluster, tmp_path: Path, launcher: str, down: Callable[..., None]
):
    cut = cluster.workers[1]
    with launched(cluster, tiny(cluster, tmp_path, launcher, restarts=2), tiny=True) as one:
        one.wait_for_a_step()
        wrapper = parent_of(trainer_of(attempt_of(one, 1), 0))
        os.kill(int(wrapper.name), signal.SIGKILL)
        down("kill -9 of a rank", "DSFORGE_ATTEMPT_DIR", attempt_of(one, 1), time.monotonic())
        one.wait_for_a_step(2)
        try:
            cluster.connect(cut, connected=False)
            began = time.monotonic()
            down("network cut", "DSFORGE_ATTEMPT_DIR", attempt_of(one, 2), began)
        finally:
            cluster.connect(cut, connected=True)
        one.wait_for_a_step(3)
        began = time.monotonic()
        one.stop()
        told = one.end(EVERYTHING_DOWN_SECONDS)
        down("cancel", "DSFORGE_RUN_ID", told["run_id"], began)
        state = one.state
    print(told, state)
    assert state is not None
    first, second = (restart.why for restart in state.restarts)
    assert first.startswith(f"rank 0 on host {cluster.workers[0].name} was killed by SIGKILL")
    assert second.startswith(f"host {cut.address} ")
    assert (one.process.returncode, told["exit"]["kind"]) == (143, "terminated")


@pytest.mark.parametrize("launcher", ALL)
def test_of_two_runs_on_the_same_hosts_one_is_stopped_and_the_other_goes_on(
    cluster: Cluster, tmp_path: Path, launcher: str, down: Callable[..., None]
):
    """Ctrl-C reaches all of the terminal's processes; then the other run's supervisor is killed."""
    with (
        launched(cluster, tiny(cluster, tmp_path / "a", launcher), tiny=True) as one,
        launched(cluster, tiny(cluster, tmp_path / "b", launcher), tiny=True) as other,
    ):
        one.wait_for_a_step()
        other.wait_for_a_step()
        began = time.monotonic()
        os.kill(one.supervisor(), signal.SIGINT)
        told = one.end(EVERYTHING_DOWN_SECONDS)
        down("Ctrl-C", "DSFORGE_RUN_ID", told["run_id"], began)
        assert (one.process.returncode, told["exit"]["kind"]) == (130, "interrupted")
        steps = len([line for line in other.lines() if isinstance(line, MetricsLine)])
        deadline = time.monotonic() + 60
        while len([line for line in other.lines() if isinstance(line, MetricsLine)]) < steps + 20:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert other.process.poll() is None
        began = time.monotonic()
        os.kill(other.supervisor(), signal.SIGKILL)
        down("kill -9 of the launcher", "DSFORGE_RUN_ID", other.run_dir.path.name, began)
