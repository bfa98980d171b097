"""What a run comes back from, and what is ended when nobody is left to do it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.hosts import Cluster
from tests.cluster.runs import TWO_NODES, parent_of
from tests.cluster.test_launch import (
    ENDLESS,
    PATIENCE_SECONDS,
    environ_of,
    gone_within,
    launched,
    marked,
    recipe_for,
    trainer_of,
)
from tests.support.recipes import write

pytestmark = pytest.mark.cluster

STEPS = ("train.steps=30", "checkpoint.every_steps=5")


@contextmanager
def alone(cluster: Cluster, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the same two ranks on one machine, beside whatever else happens."""
    folder.mkdir()
    recipe = write(folder, TWO_NODES.replace("nodes: 2, gpus_per_node: 1", "nodes: 1, gpus_per_node: 2"))
    command = (sys.executable, "-m", "dsforge.cli", "launch", str(recipe), "--json", *STEPS)
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environ_of(cluster),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_a_spare_takes_the_place_of_a_lost_host_and_then_fewer_hosts_do(cluster: Cluster, tmp_path: Path):
    """One host loses its network, the next one crashes; the global batch stays, and so do the losses."""
    (kept, cut), (spare,) = cluster.workers, cluster.spares
    recipe = recipe_for(cluster, tmp_path, launcher="ssh", restarts=2, shrink=True)
    text = recipe.read_text().replace("hostfile: hosts", "hostfile: hosts, spares: 1")
    recipe.write_text(text.replace("parallel: {dp: 2}", "parallel: {dp: auto, zero: 0}"))
    with (tmp_path / "hosts").open("a") as hosts:
        hosts.write(f"{spare.address} slots=1\n")
    with launched(cluster, recipe, *STEPS) as one, alone(cluster, tmp_path / "alone") as undisturbed:
        one.wait_for_a_step()
        try:
            cluster.connect(cut, connected=False)
            one.wait_for_a_step(attempt=2)
            cluster.crash(kept)
            told = one.end()
        finally:
            cluster.connect(cut, connected=True)
            cluster.boot(kept)
        said = (tmp_path / "told").read_text()
        assert one.process.returncode == 0, said
        losses = json.loads(undisturbed.communicate(timeout=PATIENCE_SECONDS)[0])["losses"]
        assert gone_within(told["run_id"], 30.0)  # the lost host's own guard ends what was left there
        second, third = ({rank: r.host for rank, r in one.reports(attempt).items()} for attempt in (2, 3))
        assert one.state is not None
        reasons = [restart.reason for restart in one.state.restarts]
    assert second == {0: kept.name, 1: spare.name}
    assert third == {0: spare.name}
    assert f"{spare.address} stands in for {cut.address}" in said
    # Either may be the last that was tried in vain.
    (fewer,) = (line for line in said.splitlines() if "planned anew for 1 node, without " in line)
    assert {kept.address, cut.address} == set(fewer.partition("without ")[2].partition(";")[0].split(", "))
    assert (told["attempts"], set(reasons) <= {"host_lost", "network"}) == (3, True)
    assert told["losses"] == pytest.approx(losses, abs=1e-5)


def test_what_nobody_is_left_to_end_is_reaped_on_its_host(cluster: Cluster, tmp_path: Path):
    """The supervisor is killed, and on a host the guard and the connection; its rank stands still."""
    with launched(cluster, recipe_for(cluster, tmp_path, launcher="ssh"), *ENDLESS) as one:
        one.wait_for_a_step()
        run_id, left = one.run_dir.path.name, Path("/proc", str(trainer_of(one, 1)))
        wrapper = parent_of(left)
        agent = parent_of(parent_of(wrapper))
        assert b"dsforge.rank.agent" in (agent / "cmdline").read_bytes()
        (guard,) = [path for path in marked("DSFORGE_RUN_ID", run_id) if _is_guard_of(path, 1)]
        for process in (left, wrapper):
            os.kill(int(process.name), signal.SIGSTOP)
        for process in (guard, agent):
            os.kill(int(process.name), signal.SIGKILL)
        os.kill(one.supervisor(), signal.SIGKILL)
        words = ("-m", "dsforge.cli", "runs", "reap", "--json", "--runs", str(one.runs))
        done = subprocess.run(
            cluster.head.inside(sys.executable, *words),
            env=environ_of(cluster),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert gone_within(run_id, 1.0)
        (told,) = json.loads(done.stdout)["runs"]
        assert one.state is not None
        end = one.state.exit
    assert told["hosts"][cluster.workers[1].address] == {"found": 2, "left": 0}
    assert (told["run_id"], told["clean"], told["silent"]) == (run_id, True, {})
    assert end is not None
    assert (one.state.state, end.kind, end.reason) == ("failed", "launcher_died", "launcher")


def _is_guard_of(process: Path, node: int) -> bool:
    words = (process / "cmdline").read_bytes().split(b"\0")
    return b"dsforge.rank.guard" in words and words[-2] == str(node).encode()
