"""What is told of a run on two hosts that does not go on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.hosts import Cluster
from tests.cluster.runs import TWO_NODES
from tests.cluster.test_launch import (
    ENDLESS,
    environ_of,
    gone_within,
    launched,
    recipe_for,
    trainer_of,
)
from tests.support.recipes import ROOT, write

pytestmark = pytest.mark.cluster

WATCHDOG_SECONDS = 12
SCRIPT = """\
version: 1
name: broken
model: {arch: gpt, layers: 1, hidden: 8, heads: 1, vocab: 16}
cluster: {nodes: 2, gpus_per_node: 2, gpu: cpu, hostfile: hosts}
batch: {global: 4, micro: 1, seq_len: 1}
train: {steps: 6}
trainer: external
external:
  {flavour: script, path: PATH, entry: stuck.py, arguments: ["{train.steps}", "{batch.micro}", 0]}
launch: {launcher: ssh, env: {GLOO_SOCKET_IFNAME: eth0}}
"""


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


def test_the_first_error_of_another_host_is_the_code_and_the_first_of_the_logs(
    cluster: Cluster, two_on_each: Path
):
    write(two_on_each.parent, SCRIPT.replace("PATH", str(ROOT / "tests/external_support")))
    with launched(cluster, two_on_each) as one:
        told = one.end()
    how, host = told["exit"], cluster.workers[1].name
    assert one.process.returncode == how["code"] == 7
    assert (how["kind"], how["reason"], how["rank"], how["host"]) == ("rank_failed", "program", 3, host)
    assert how["message"].startswith(f"rank 3 on host {host} exited with code 7 after step 2")
    logs = (sys.executable, "-m", "dsforge.cli", "runs", "logs", "latest", "--runs", str(one.runs))
    shown = subprocess.run(logs, env=environ_of(cluster), capture_output=True, text=True, check=True).stdout
    first, *lines = shown.splitlines()
    assert first == f"== first error: rank 3 on host {host}"
    assert lines.index("[rank 3] ValueError: bad shard") < lines.index("== all lines")
