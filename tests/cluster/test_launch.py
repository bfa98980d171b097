"""`dsforge launch` from one host onto two others, which share nothing with it but files and a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.hosts import Cluster
from tests.cluster.runs import TWO_NODES
from tests.support.recipes import ROOT, write

pytestmark = pytest.mark.cluster

PATIENCE_SECONDS = 300.0


def recipe_for(cluster: Cluster, folder: Path, **launch: Any) -> Path:
    (folder / "hosts").write_text("".join(f"{host.address} slots=1\n" for host in cluster.workers))
    text = TWO_NODES.replace("gpu: cpu", "gpu: cpu, hostfile: hosts")
    launch["env"] = {"GLOO_SOCKET_IFNAME": "eth0", **launch.get("env", {})}
    return write(folder, f"{text}launch: {json.dumps(launch)}\n")


def environ_of(cluster: Cluster, **more: str) -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": os.environ["HOME"],
        "PYTHONPATH": str(ROOT),
        "PDSH_SSH_ARGS_APPEND": cluster.ssh_options,
        "DSFORGE_SSH_ARGS": cluster.ssh_options,
        **more,
    }


def launch(cluster: Cluster, recipe: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = cluster.head.inside(sys.executable, "-m", "dsforge.cli", "launch", str(recipe), "--json", *words)
    return subprocess.run(
        command,
        cwd=recipe.parent,
        env=environ_of(cluster),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


@pytest.mark.parametrize("launcher", ["ssh", "pdsh"])
def test_two_hosts_train_as_one(cluster: Cluster, tmp_path: Path, launcher: str):
    done = launch(cluster, recipe_for(cluster, tmp_path, launcher=launcher))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert cluster.left(told["run_id"]) == []
