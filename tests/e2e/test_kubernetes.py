"""Job objects whose pods really run, as processes with the environment that Kubernetes would give them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsforge.base import processes
from dsforge.records import environment
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import RunState, read_state
from tests.support.kubernetes import Kubelet, image
from tests.support.recipes import SMALL, write

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 240.0
SECRET = "s3cret 'b' $(RANK) $$c, d"
ODD = "a 'b', $(RANK) $$ $HOME;"
PODS = SMALL.replace("nodes: 1, gpus_per_node: 8", "nodes: 2, gpus_per_node: 2").replace(
    "{tp: 2, pp: 2, dp: 2, zero: 1}", "{tp: 2, dp: 2}"
)
ALONE = SMALL.replace("gpus_per_node: 8", "gpus_per_node: 1").replace("{tp: 2, pp: 2, dp: 2, zero: 1}", "{}")
DSFORGE = (sys.executable, "-m", "dsforge.cli")


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    made = Kubelet(folder=tmp_path, variables=image())
    with made.serving(tmp_path):
        yield made
    made.end()


def recipe_for(folder: Path, kind: str, **launch: Any) -> Path:
    section = {
        "launcher": "kubernetes",
        "stop_timeout": "20s",
        "env": {"GLOO_SOCKET_IFNAME": "lo", "TINY_STEPS": "0", "ODD": ODD},
        "env_from": ["HF_TOKEN"],
        "kubernetes": {"kind": kind, "image": "registry/dsforge:1", "volumes": {"shared": str(folder)}},
        **launch,
    }
    lines = "".join(f"  {key}: {json.dumps(value)}\n" for key, value in section.items())
    return write(folder, f"{PODS}launch:\n{lines}")


class Launched:
    """A launch in a process of its own, and the run that it makes."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            words,
            cwd=folder,
            env={
                **image(),
                "KUBECONFIG": str(folder / "kubeconfig"),
                "XDG_CACHE_HOME": str(folder / "cache"),
                "HF_TOKEN": SECRET,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def run_dir(self) -> RunDir:
        return RunDir(next((self.folder / "runs").iterdir()))

    @property
    def state(self) -> RunState:
        state = read_state(self.run_dir.state)
        assert state is not None
        return state

    def wait_for_a_step(self, attempt: int = 1) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not ((self.folder / "runs").exists() and self.run_dir.attempt(attempt).metrics.exists()):
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def end(self) -> tuple[int, dict[str, Any], str]:
        """Return code, JSON and messages; nothing of the run is left."""
        said, told = self.process.communicate(timeout=PATIENCE_SECONDS)
        assert not processes.carrying(environment.RUN_ID, self.run_dir.path.name)
        return self.process.returncode, json.loads(said or "{}"), told


def test_pods_train_as_one_rank_does(kubelet: Kubelet, tmp_path: Path):
    """Two pods of two ranks, TP 2 x DP 2: a rank in the wrong place would train something else."""
    alone = tmp_path / "alone"
    alone.mkdir()
    write(alone, ALONE)
    reference = Launched(alone, *DSFORGE, "launch", "recipe.yaml", "--json", "train.steps=4")
    recipe_for(tmp_path, "pytorchjob")
    one = Launched(tmp_path, *DSFORGE, "launch", "recipe.yaml", "--json", "train.steps=4")
    one.wait_for_a_step()
    (job,) = kubelet.jobs
    assert [value["data"].keys() for value in kubelet.secrets.values()] == [{"HF_TOKEN"}]
    seen = [
        dict(item.partition(b"=")[::2] for item in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
        for pid in _trainers(one.run_dir)
    ]
    ranks = {(int(one[b"RANK"]), int(one[b"LOCAL_RANK"]), int(one[b"WORLD_SIZE"])) for one in seen}
    assert ranks == {(0, 0, 4), (1, 1, 4), (2, 0, 4), (3, 1, 4)}
    assert {(one[b"ODD"].decode(), one[b"HF_TOKEN"].decode()) for one in seen} == {(ODD, SECRET)}
    assert {one[b"MASTER_ADDR"] for one in seen} == {b"127.0.0.1"}
    code, told, messages = one.end()
    assert code == 0, messages
    assert reference.end()[0] == 0
    assert told["losses"] == pytest.approx(_losses(reference.run_dir), abs=1e-5)
    assert (kubelet.jobs, kubelet.pods, kubelet.secrets) == ({}, {}, {})
    ((_, path, query, _),) = kubelet.asked("DELETE", "pytorchjobs")
    assert path.endswith(f"/namespaces/team/pytorchjobs/{job}")
    assert query == {"propagationPolicy": "Foreground"}
    written = [file for file in tmp_path.rglob("*") if file.is_file() and file.stat().st_size < 10**6]
    assert not [file for file in written if b"s3cret" in file.read_bytes()]


def test_a_lost_pod_is_named_the_run_comes_back_and_is_stopped(kubelet: Kubelet, tmp_path: Path):
    recipe = recipe_for(tmp_path, "jobset", restarts=1)
    tiny = (sys.executable, "-m", "tests.launch_support.as_job", str(recipe))
    one = Launched(tmp_path, *tiny)
    one.wait_for_a_step()
    (first,) = kubelet.jobs
    kubelet.evict(f"{first}-ranks-0-1-x1z")
    one.wait_for_a_step(attempt=2)
    (second,) = kubelet.jobs
    assert second != first
    one.process.send_signal(signal.SIGINT)
    code, told, messages = one.end()
    (restart,) = one.state.restarts
    assert restart.why.startswith("host pod-1 "), messages
    assert (code, told["exit"]["kind"], told["attempts"]) == (130, "interrupted", 2)
    assert (kubelet.jobs, kubelet.secrets) == ({}, {})


def test_a_killed_supervisor_leaves_no_job(kubelet: Kubelet, tmp_path: Path):
    recipe = recipe_for(tmp_path, "pytorchjob")
    one = Launched(tmp_path, sys.executable, "-m", "tests.launch_support.as_job", str(recipe))
    one.wait_for_a_step()
    os.kill(one.process.pid, signal.SIGKILL)
    one.process.communicate(timeout=PATIENCE_SECONDS)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while kubelet.jobs or processes.carrying(environment.RUN_ID, one.run_dir.path.name):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _trainers(run_dir: RunDir) -> list[int]:
    found = processes.carrying(environment.RUN_ID, run_dir.path.name)
    return [one.pid for one in found if "dsforge.train.main" in _words(one.pid)[3:4]]


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def _losses(run_dir: RunDir) -> list[float]:
    lines = run_dir.attempt(1).metrics.read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]
