"""Job objects whose pods really run, as processes with the environment that Kubernetes would give them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dsforge.base import processes
from dsforge.records import environment
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import RunState, read_state
from tests.launch_support.bundles import TRAINER
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
STEPS = ("train.steps=2", "optimizer.warmup_steps=1")


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
        return RunDir(next((self.folder / "runs").glob("[!.]*")))

    @property
    def state(self) -> RunState:
        state = read_state(self.run_dir.state)
        assert state is not None
        return state

    def wait_for_a_step(self, attempt: int = 1) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not any((self.folder / "runs").glob(f"*/attempt-{attempt}/metrics.jsonl")):
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def end(self) -> tuple[int, dict[str, Any], str]:
        """Return code, JSON and messages; nothing of the run is left."""
        said, told = self.process.communicate(timeout=PATIENCE_SECONDS)
        assert not processes.carrying(environment.RUN_ID, self.run_dir.path.name)
        return self.process.returncode, json.loads(said or "{}"), told


@pytest.fixture
def launch() -> Iterator[Callable[..., Launched]]:
    """Launch in processes that end with the test."""
    started: list[Launched] = []

    def start(folder: Path, *words: str) -> Launched:
        started.append(Launched(folder, *words))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


Launch = Callable[..., Launched]


def test_pods_train_as_one_rank_does(kubelet: Kubelet, launch: Launch, tmp_path: Path):
    """Two pods of two ranks, TP 2 x DP 2: a rank in the wrong place would train something else."""
    alone = tmp_path / "alone"
    alone.mkdir()
    write(alone, ALONE)
    reference = launch(alone, *DSFORGE, "launch", "recipe.yaml", "--json", *STEPS)
    recipe_for(tmp_path, "pytorchjob")
    one = launch(tmp_path, *DSFORGE, "launch", "recipe.yaml", "--json", *STEPS)
    code, told, messages = one.end()
    assert code == 0, messages
    assert reference.end()[0] == 0
    assert told["losses"] == pytest.approx(_losses(reference.run_dir), abs=1e-5)
    assert (kubelet.jobs, kubelet.pods, kubelet.secrets) == ({}, {}, {})
    ((_, path, query, _),) = kubelet.asked("DELETE", "pytorchjobs")
    assert "/namespaces/team/pytorchjobs/dsf-small-" in path
    assert query == {"propagationPolicy": "Foreground"}
    written = [file for file in tmp_path.rglob("*") if file.is_file() and file.stat().st_size < 10**6]
    assert not [file for file in written if b"s3cret" in file.read_bytes()]


def test_a_lost_pod_is_named_and_the_run_comes_back(kubelet: Kubelet, launch: Launch, tmp_path: Path):
    recipe = recipe_for(tmp_path, "jobset", restarts=1)
    tiny = (sys.executable, "-m", "tests.launch_support.as_job", str(recipe))
    one = launch(tmp_path, *tiny)
    one.wait_for_a_step()
    check_ranks(one.run_dir)
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


def test_a_killed_supervisor_leaves_no_job(kubelet: Kubelet, launch: Launch, tmp_path: Path):
    recipe = recipe_for(tmp_path, "pytorchjob")
    one = launch(tmp_path, sys.executable, "-m", "tests.launch_support.as_job", str(recipe))
    one.wait_for_a_step()
    check_ranks(one.run_dir)
    assert [value["data"].keys() for value in kubelet.secrets.values()] == [{"HF_TOKEN"}]
    os.kill(one.process.pid, signal.SIGKILL)
    one.process.communicate(timeout=PATIENCE_SECONDS)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while kubelet.jobs or processes.carrying(environment.RUN_ID, one.run_dir.path.name):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def check_ranks(run_dir: RunDir) -> None:
    """See that each rank of the tiny trainer knows who it is, and has what the recipe gives it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    trainers: list[int] = []
    while len(trainers) < 4:
        assert time.monotonic() < deadline
        marked = processes.carrying(environment.RUN_ID, run_dir.path.name)
        trainers = [one.pid for one in marked if _words(one.pid)[3:4] == [TRAINER]]
    seen = [
        dict(item.partition("=")[::2] for item in Path(f"/proc/{pid}/environ").read_text().split("\0"))
        for pid in trainers
    ]
    ranks = {(one["RANK"], one["LOCAL_RANK"], one["WORLD_SIZE"], one["CROSS_RANK"]) for one in seen}
    assert ranks == {("0", "0", "4", "0"), ("1", "1", "4", "0"), ("2", "0", "4", "1"), ("3", "1", "4", "1")}
    assert {(one["ODD"], one["HF_TOKEN"], one["MASTER_ADDR"]) for one in seen} == {(ODD, SECRET, "127.0.0.1")}
    assert len({one["MASTER_PORT"] for one in seen}) == 1


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def _losses(run_dir: RunDir) -> list[float]:
    lines = run_dir.attempt(1).metrics.read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]
