"""What is told of a run on two hosts that does not go on."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from tests.cluster.hosts import Cluster
from tests.cluster.runs import TWO_NODES
from tests.cluster.test_launch import ENDLESS, gone_within, launched, recipe_for, trainer_of
from tests.support.recipes import write

pytestmark = pytest.mark.cluster

WATCHDOG_SECONDS = 5


@pytest.fixture
def two_on_each(cluster: Cluster, tmp_path: Path) -> Path:
    recipe_for(cluster, tmp_path, launcher="ssh")
    hosts = "".join(f"{host.address} slots=2\n" for host in cluster.workers)
    (tmp_path / "hosts").write_text(hosts)
    text = TWO_NODES.replace("gpus_per_node: 1, gpu: cpu", "gpus_per_node: 2, gpu: cpu, hostfile: hosts")
    env = {"GLOO_SOCKET_IFNAME": "eth0"}
    launch = {"launcher": "ssh", "env": env, "watchdog": f"{WATCHDOG_SECONDS}s"}
    return write(tmp_path, f"{text.replace('{dp: 2}', '{dp: 4}')}launch: {json.dumps(launch)}\n")


def test_a_rank_that_stands_still_is_named_with_its_host_and_what_the_others_wait_in(
    cluster: Cluster, two_on_each: Path
):
    with launched(cluster, two_on_each, *ENDLESS) as one:
        one.wait_for_a_step()
        os.kill(trainer_of(one, 2), signal.SIGSTOP)
        told = one.end()
        assert gone_within(told["run_id"], 0)
        stacks = [one.run_dir.attempt(1).stacks(node).read_text() for node in (0, 1)]
    how = told["exit"]
    assert one.process.returncode == how["code"] == 124
    assert (how["kind"], how["reason"], how["rank"]) == ("watchdog", "hung", 2)
    assert how["host"] == cluster.workers[1].name
    first, *more = how["message"].splitlines()
    assert first.startswith(f"no progress for launch.watchdog, {WATCHDOG_SECONDS} s; the last step was ")
    assert f"; hung: rank 2 on host {cluster.workers[1].name} is stopped by a signal (SIGSTOP)" in first
    # Those that are a bucket ahead wait in another call than the rest.
    waiting = " ".join(line.split(" wait")[0] for line in more if " in " in line)
    assert {"0", "3"} <= set(re.findall(r"[0-9]+", waiting)) <= {"0", "1", "3"}, more
    assert [text.count("== rank") for text in stacks] == [4, 4]
