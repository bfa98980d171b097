"""What befalls a run on several hosts: named, down on all of them in half a minute, and back if it may."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from dsforge.records.streams import MetricsLine
from tests.cluster.conftest import Down
from tests.cluster.hosts import Cluster
from tests.cluster.runs import EVERYTHING_DOWN_SECONDS, MOST_SECONDS, parent_of, trainer_of
from tests.cluster.test_launch import (
    LAUNCHERS,
    OTHERS,
    Launched,
    launched,
    recipe_for,
)

pytestmark = pytest.mark.cluster

RUN, ATTEMPT = "DSFORGE_RUN_ID", "DSFORGE_ATTEMPT_DIR"
ALL = LAUNCHERS + OTHERS


def tiny(cluster: Cluster, folder: Path, launcher: str, **launch: Any) -> Path:
    folder.mkdir(exist_ok=True)
    return recipe_for(cluster, folder, launcher=launcher, env={"TINY_STEPS": "0"}, **launch)


def attempt_of(one: Launched, number: int) -> str:
    return str(one.run_dir.attempt(number).path)


@pytest.mark.parametrize("launcher", ALL)
def test_a_run_comes_back_from_a_killed_rank_and_a_cut_network_and_is_cancelled(
    cluster: Cluster, tmp_path: Path, launcher: str, down: Down
):
    """What cancels it is a SIGTERM to its supervisor, which a time limit around dsforge sends, too."""
    cut = cluster.workers[1]
    with launched(cluster, tiny(cluster, tmp_path, launcher, restarts=2), tiny=True) as one:
        one.wait_for_a_step()
        wrapper = parent_of(trainer_of(attempt_of(one, 1), 0))
        began = time.monotonic()
        os.kill(int(wrapper.name), signal.SIGKILL)
        assert down("kill -9 of a rank", began, ATTEMPT, attempt_of(one, 1)) < MOST_SECONDS
        one.wait_for_a_step(2)
        try:
            began = time.monotonic()
            cluster.connect(cut, connected=False)
            down("a network is cut", began, ATTEMPT, attempt_of(one, 2))
        finally:
            cluster.connect(cut, connected=True)
        one.wait_for_a_step(3)
        began = time.monotonic()
        one.stop()
        told = one.end(EVERYTHING_DOWN_SECONDS)
        assert down("`runs stop`", began, RUN, told["run_id"]) < MOST_SECONDS
        state = one.state
    assert state is not None
    first, second = (restart.why for restart in state.restarts)
    assert first.startswith(f"rank 0 on host {cluster.workers[0].name} was killed by SIGKILL")
    assert second.startswith(f"host {cut.address} ")
    assert (one.process.returncode, told["exit"]["kind"]) == (143, "terminated")


@pytest.mark.parametrize("launcher", ALL)
def test_of_two_runs_on_the_same_hosts_one_is_stopped_and_the_other_goes_on(
    cluster: Cluster, tmp_path: Path, launcher: str, down: Down
):
    """One by Ctrl-C, which launchers in sessions of their own do not hear; then the other's supervisor."""
    with (
        launched(cluster, tiny(cluster, tmp_path / "a", launcher), tiny=True) as one,
        launched(cluster, tiny(cluster, tmp_path / "b", launcher), tiny=True) as other,
    ):
        one.wait_for_a_step()
        other.wait_for_a_step()
        began = time.monotonic()
        os.kill(one.supervisor(), signal.SIGINT)
        told = one.end(EVERYTHING_DOWN_SECONDS)
        assert down("Ctrl-C", began, RUN, told["run_id"]) < MOST_SECONDS
        assert (one.process.returncode, told["exit"]["kind"]) == (130, "interrupted")
        steps = len([line for line in other.lines() if isinstance(line, MetricsLine)])
        deadline = time.monotonic() + 60
        while len([line for line in other.lines() if isinstance(line, MetricsLine)]) < steps + 20:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert other.process.poll() is None
        began = time.monotonic()
        os.kill(other.supervisor(), signal.SIGKILL)
        assert down("kill -9 of the launcher", began, RUN, other.run_dir.path.name) < MOST_SECONDS
