"""`dsforge launch` for PBS: the rendered script on two hosts, with stand-ins for PBS's own programs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import read_state
from tests.cluster import pbs
from tests.cluster.hosts import Cluster
from tests.cluster.runs import TWO_NODES
from tests.cluster.test_launch import SECRET, environ_of, marked
from tests.support.recipes import write

pytestmark = pytest.mark.cluster

PATIENCE_SECONDS = 240.0
ODD = "a 'b', $HOME;"
TINY = "tests.launch_support.as_job"


class Pbs:
    """A cluster with the stand-ins on its first host's PATH, and what is started there."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self.folder = cluster, folder
        programs = folder / "bin"
        programs.mkdir()
        pbs.install(programs)
        (folder / "jobs").mkdir()
        (folder / "jobs" / "hosts").write_text("".join(f"{host.address}\n" for host in cluster.workers))
        environ = environ_of(cluster)
        self.environ = {
            **environ,
            "PATH": f"{programs}:{environ['PATH']}",
            "STANDIN_FOLDER": str(folder / "jobs"),
            "STANDIN_SSH": cluster.ssh_options,
        }

    def recipe(self, **launch: Any) -> Path:
        section = {
            "launcher": "pbs",
            "stop_timeout": "20s",
            "env": {"GLOO_SOCKET_IFNAME": "eth0", "ODD": ODD, "TINY_STEPS": "0"},
            "env_from": ["HF_TOKEN"],
            **launch,
        }
        return write(self.folder, f"{TWO_NODES}launch: {json.dumps(section)}\n")

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._cluster.head.inside(sys.executable, "-m", *words),
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=(self.folder / "told").open("ab"),
            text=True,
        )

    @property
    def run_dir(self) -> RunDir:
        return RunDir(next((self.folder / "runs").glob("[!.]*")))

    def wait_for_a_step(self, process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not any((self.folder / "runs").glob("*/attempt-1/metrics.jsonl")):
            assert process.poll() is None, (self.folder / "told").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)


def end(process: subprocess.Popen[str]) -> dict[str, Any]:
    said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    return json.loads(said)


def test_a_job_trains_and_is_stopped_from_the_login_host(cluster: Cluster, tmp_path: Path):
    here = Pbs(cluster, tmp_path)
    here.recipe(pbs={"notice": 0})
    one = here.start(TINY, str(tmp_path / "recipe.yaml"))
    here.wait_for_a_step(one)
    run_id = here.run_dir.path.name
    ranks = [
        process
        for process in marked("DSFORGE_RUN_ID", run_id)
        if b"tests.launch_support.trainer" in (process / "cmdline").read_bytes().split(b"\0")[3:4]
    ]
    assert len(ranks) == 2
    for rank in ranks:
        seen = set((rank / "environ").read_bytes().split(b"\0"))
        assert {f"ODD={ODD}".encode(), f"HF_TOKEN={SECRET}".encode(), b"WORLD_SIZE=2"} <= seen
    assert here.run_dir.job_file("pbs").read_text() == "1.server\n"
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path)]
    assert not [words for words in commands if b"s3cret" in words]
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size < 10**6]
    assert not [path for path in written if b"s3cret" in path.read_bytes()]
    shown = end(here.start("dsforge.cli", "runs", "list", "--json"))["runs"]
    assert [(run["state"], run["job"], run["scheduler"]) for run in shown] == [("running", "1.server", "PBS")]
    stopped = end(here.start("dsforge.cli", "runs", "stop", run_id, "--json"))
    assert stopped["how"] == "supervisor"
    told = end(one)
    assert (one.returncode, told["exit"]["kind"]) == (143, "terminated")
    assert not marked("DSFORGE_RUN_ID", run_id)


def test_the_losses_are_those_of_one_host(cluster: Cluster, tmp_path: Path):
    here = Pbs(cluster, tmp_path)
    alone = tmp_path / "alone"
    alone.mkdir()
    write(alone, TWO_NODES.replace("nodes: 2, gpus_per_node: 1", "nodes: 1, gpus_per_node: 2"))
    here.recipe()
    one = here.start("dsforge.cli", "launch", "recipe.yaml", "--json")
    other = here.start("dsforge.cli", "launch", "alone/recipe.yaml", "--json", "--runs", "alone/runs")
    undisturbed, told = end(other), end(one)
    assert (one.returncode, other.returncode) == (0, 0), told
    assert len(told["losses"]) == 4
    assert told["losses"] == pytest.approx(undisturbed["losses"], abs=1e-5)


def test_what_qsub_refuses_and_a_job_of_another_world(cluster: Cluster, tmp_path: Path):
    here = Pbs(cluster, tmp_path)
    here.recipe()
    refused = here.start("dsforge.cli", "launch", "recipe.yaml", "launch.pbs.queue=none")
    assert refused.wait(PATIENCE_SECONDS) == 3
    assert "PBS did not take the job: qsub: Unknown queue" in (tmp_path / "told").read_text()
    assert not here.run_dir.job_secrets.exists()
    state = read_state(here.run_dir.state)
    assert state is not None
    assert state.state == "failed"
    (tmp_path / "nodes").write_text("h1\nh1\n")
    here.environ |= {"PBS_JOBID": "7.server", "PBS_NODEFILE": str(tmp_path / "nodes")}
    other = here.start("dsforge.cli", "launch", "recipe.yaml")
    assert other.wait(PATIENCE_SECONDS) == 3
    assert "error[DSF243]" in (tmp_path / "told").read_text()
    assert "nodes: 1, the plan has 2" in (tmp_path / "told").read_text()


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True
