"""`dsforge launch` under a real Slurm: in a job of its own and in an allocation of the user's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import RunState, read_state
from tests.cluster.conftest import Down, Slurm
from tests.cluster.runs import (
    EVERYTHING_DOWN_SECONDS,
    MOST_SECONDS,
    TWO_NODES,
    gone_within,
    parent_of,
    trainer_of,
)
from tests.support.recipes import write

pytestmark = pytest.mark.cluster

PATIENCE_SECONDS = 240.0
RUN, ATTEMPT = "DSFORGE_RUN_ID", "DSFORGE_ATTEMPT_DIR"
SECRET = "s3cret 'b' $c, d"
ODD = "a 'b', $HOME;"
DSFORGE = (sys.executable, "-m", "dsforge.cli")
TINY = (sys.executable, "-m", "tests.launch_support.as_job")


def recipe_for(folder: Path, *, env: dict[str, str] | None = None, job: str = "", **launch: Any) -> Path:
    section = {
        "launcher": "slurm",
        "stop_timeout": "20s",
        "env": {"GLOO_SOCKET_IFNAME": "lo", "TINY_STEPS": "0", **(env or {})},
        "env_from": ["HF_TOKEN"],
        **launch,
    }
    slurm = f"  slurm: {{partition: train, time: 10m, {job}}}\n"
    lines = "".join(f"  {key}: {json.dumps(value)}\n" for key, value in section.items())
    return write(folder, f"{TWO_NODES}launch:\n{lines}{slurm}")


class Launched:
    """A launch that is followed in a process of its own, and the run that it makes."""

    def __init__(self, slurm: Slurm, recipe: Path, *words: str) -> None:
        self._slurm = slurm
        self.folder = recipe.parent
        with (self.folder / "told").open("ab") as told:
            self.process = subprocess.Popen(
                words,
                cwd=self.folder,
                env={**slurm.environ, "HF_TOKEN": SECRET, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=told,
                text=True,
            )

    @property
    def run_dir(self) -> RunDir:
        return RunDir(next((self.folder / "runs").glob("[!.]*")))

    @property
    def job(self) -> str:
        return self.run_dir.job_file("slurm").read_text().strip()

    def attempt(self, number: int) -> str:
        return str(self.run_dir.attempt(number).path)

    @property
    def state(self) -> RunState:
        state = read_state(self.run_dir.state)
        assert state is not None
        return state

    def trainer(self, rank: int, attempt: int = 1) -> Path:
        return trainer_of(str(self.run_dir.attempt(attempt).path), rank)

    def wait_for_a_step(self, attempt: int = 1) -> None:
        self.wait(lambda: any(self.folder.glob(f"runs/*/attempt-{attempt}/metrics.jsonl")))

    def wait(self, ready) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not ready():
            assert self.process.poll() is None, (self.folder / "told").read_text()
            assert time.monotonic() < deadline, (self.folder / "told").read_text()
            time.sleep(0.1)

    def start_again(self) -> None:
        """Wait until the job is queued again, and spare it the minutes that Slurm has such jobs wait."""
        self.wait(lambda: self._slurm.job(self.job)["JobState"] == "PENDING")
        time.sleep(3)  # within the same second its nodes still refuse it, as killed
        self._slurm.run("scontrol", "update", f"jobid={self.job}", "starttime=now")

    def end(self, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        said, _ = self.process.communicate(timeout=seconds)
        assert gone_within(self.run_dir.path.name, 0)
        return json.loads(said)


@contextmanager
def launched(slurm: Slurm, recipe: Path, *words: str) -> Iterator[Launched]:
    one = Launched(slurm, recipe, *words)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait()


def command(slurm: Slurm, folder: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    """Return code, JSON and messages of a command."""
    done = subprocess.run(
        (*DSFORGE, *words, "--json"),
        cwd=folder,
        env={**slurm.environ, "HF_TOKEN": SECRET},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def commands() -> Iterator[bytes]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            yield (process / "cmdline").read_bytes()


def test_a_job_trains_as_one_and_comes_back(slurm: Slurm, tmp_path: Path, down: Down):
    """The losses of the same two ranks on one machine, though one on the other host is killed on the way."""
    more = ("train.steps=8", "checkpoint.every_steps=1")
    alone = tmp_path / "alone"
    alone.mkdir()
    write(alone, TWO_NODES.replace("nodes: 2, gpus_per_node: 1", "nodes: 1, gpus_per_node: 2"))
    code, undisturbed, said = command(slurm, alone, "launch", "recipe.yaml", "train.steps=8")
    assert code == 0, said
    recipe = recipe_for(tmp_path, env={"ODD": ODD}, restarts=1)
    with launched(slurm, recipe, *DSFORGE, "launch", "recipe.yaml", "--json", *more) as one:
        one.wait_for_a_step()
        for rank in (0, 1):
            seen = (one.trainer(rank) / "environ").read_bytes().split(b"\0")
            assert {f"ODD={ODD}".encode(), f"HF_TOKEN={SECRET}".encode()} <= set(seen)
        assert not [words for words in commands() if b"s3cret" in words]
        began = time.monotonic()
        os.kill(int(one.trainer(1).name), signal.SIGKILL)
        assert down("kill -9 of a rank", began, ATTEMPT, one.attempt(1)) < MOST_SECONDS
        told = one.end()
        assert one.process.returncode == 0, (tmp_path / "told").read_text()
        assert one.state.restarts[0].why.startswith("rank 1 on host")
    assert told["attempts"] == 2
    assert told["losses"] == pytest.approx(undisturbed["losses"], abs=1e-5)
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size < 10**6]
    assert not [path for path in written if b"s3cret" in path.read_bytes()]


def test_out_of_time_the_run_queues_goes_on_and_is_stopped_from_elsewhere(
    slurm: Slurm, tmp_path: Path, down: Down
):
    with launched(slurm, recipe_for(tmp_path, job="notice: 1m"), *TINY, str(tmp_path / "recipe.yaml")) as one:
        one.wait_for_a_step()
        began = time.monotonic()
        slurm.run("scancel", "--batch", "--signal=USR1", one.job)  # what Slurm does a minute before the limit
        assert down("notice of the time limit", began, ATTEMPT, one.attempt(1)) < MOST_SECONDS
        one.wait(lambda: one.state.state == "queued")
        one.start_again()
        one.wait_for_a_step(attempt=2)
        run_id = one.run_dir.path.name
        _, listed, _ = command(slurm, tmp_path, "runs", "list")
        assert [(run["state"], run["attempt"], run["job"]) for run in listed["runs"]] == [
            ("running", 2, one.job)
        ]
        began = time.monotonic()
        code, stopped, said = command(slurm, tmp_path, "runs", "stop", run_id)
        assert down("`runs stop`", began, RUN, run_id) < MOST_SECONDS
        assert (code, stopped["how"]) == (0, "supervisor"), said
        told = one.end(EVERYTHING_DOWN_SECONDS)
        (restart,) = one.state.restarts
    assert (restart.requeued, restart.attempt) == (True, 2)
    assert restart.why.startswith("stopped before the end of the job's time")
    assert (one.process.returncode, told["exit"]["kind"], told["attempts"]) == (143, "terminated", 2)


def test_lost_hosts_are_named_and_the_run_comes_back(slurm: Slurm, tmp_path: Path, down: Down):
    """First what holds the ranks of a node is killed, in the restart the node itself goes down."""
    try:
        with launched(slurm, recipe_for(tmp_path, restarts=1), *TINY, str(tmp_path / "recipe.yaml")) as one:
            one.wait_for_a_step()
            keeper = parent_of(parent_of(one.trainer(1)))
            assert (keeper / "cmdline").read_bytes().startswith(b"slurmstepd")
            began = time.monotonic()
            os.kill(int(keeper.name), signal.SIGKILL)
            assert down("kill -9 of slurmstepd", began, ATTEMPT, one.attempt(1)) < MOST_SECONDS
            one.wait_for_a_step(attempt=2)
            began = time.monotonic()
            slurm.run("scontrol", "update", "nodename=node2", "state=down", "reason=test")
            assert down("a node goes down", began, RUN, one.run_dir.path.name) < MOST_SECONDS
            one.wait(lambda: one.state.state == "failed")
            one.wait(lambda: slurm.job(one.job)["JobState"] == "PENDING")
            _, listed, _ = command(slurm, tmp_path, "runs", "list")
            assert listed["runs"][0]["state"] == "queued"  # again, by Slurm
            slurm.run("scancel", one.job)
            told = one.end()
            (restart,) = one.state.restarts
    finally:
        slurm.run("scontrol", "update", "nodename=node2", "state=resume", check=False)
    assert restart.why.startswith("host node2 lost slurmstepd, which held its ranks, after step")
    assert (told["exit"]["kind"], told["exit"]["host"]) == ("host_lost", "node2")
    assert told["exit"]["message"].startswith("host node2 failed after step")
    assert one.process.returncode == 137


@pytest.mark.parametrize(
    ("how", "code", "kind"), [("scancel", 143, "terminated"), ("Ctrl-C", 130, "interrupted")]
)
def test_a_cancelled_run_is_down_on_every_host(
    slurm: Slurm, tmp_path: Path, how: str, code: int, kind: str, down: Down
):
    with launched(slurm, recipe_for(tmp_path), *TINY, str(tmp_path / "recipe.yaml")) as one:
        one.wait_for_a_step()
        began = time.monotonic()
        if how == "scancel":
            slurm.run("scancel", one.job)
        else:
            one.process.send_signal(signal.SIGINT)
        assert down(how, began, RUN, one.run_dir.path.name) < MOST_SECONDS
        told = one.end(EVERYTHING_DOWN_SECONDS)
    assert (one.process.returncode, told["exit"]["code"], told["exit"]["kind"]) == (code, code, kind)


def test_in_an_allocation_it_starts_there_or_says_why_not(slurm: Slurm, tmp_path: Path, down: Down):
    recipe = recipe_for(tmp_path, env={"TINY_STEPS": "30"}, restarts=1)
    for words, difference in (
        (("salloc", "--nodes=1"), "nodes: 1, the plan has 2"),
        (("salloc", "--nodes=2"), "it has a node with 1 CPUs, the plan needs 1 ranks with 3 each there"),
    ):
        more = "launch.slurm.cpus_per_task=3"
        said = slurm.run(*words, *DSFORGE, "launch", recipe, more, cwd=tmp_path, check=False)
        assert "error[DSF240]" in said
        assert difference in said
    assert not (tmp_path / "runs").exists()
    with launched(slurm, recipe, "salloc", "--nodes=2", *TINY, str(recipe)) as one:
        one.wait_for_a_step()
        began = time.monotonic()
        os.kill(int(parent_of(one.trainer(1)).name), signal.SIGKILL)
        assert down("kill -9 of a rank in an allocation", began, ATTEMPT, one.attempt(1)) < MOST_SECONDS
        told = one.end()
        assert one.state.restarts[0].why.startswith("rank 1 on host")
    assert (one.process.returncode, told["attempts"]) == (0, 2)
    assert not one.run_dir.job_file("slurm").exists()


def test_a_job_that_waits_is_shown_and_stopped_and_one_that_is_refused_is_told(slurm: Slurm, tmp_path: Path):
    recipe_for(tmp_path, job="extra: [--begin=now+1hour]")
    code, left, _ = command(slurm, tmp_path, "launch", "recipe.yaml", "--detach")
    assert (code, left["state"], slurm.job(left["job"])["JobState"]) == (0, "queued", "PENDING")
    _, shown, _ = command(slurm, tmp_path, "runs", "show", left["run_id"])
    assert (shown["summary"]["state"], shown["summary"]["job"]) == ("queued", left["job"])
    assert command(slurm, tmp_path, "runs", "stop", left["run_id"])[0] == 0
    assert slurm.job(left["job"])["JobState"] == "CANCELLED"
    code, _, said = command(slurm, tmp_path, "launch", "recipe.yaml", "launch.slurm.partition=none")
    assert code == 3
    assert "DSF241" in said
    assert "invalid partition specified: none" in said


def test_of_two_runs_on_the_same_nodes_one_is_stopped_and_the_other_goes_on(
    slurm: Slurm, tmp_path: Path, down: Down
):
    """One in an allocation, by Ctrl-C; then what supervises the other's job is killed."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    recipe, other_recipe = (recipe_for(tmp_path / name) for name in ("a", "b"))
    with (
        launched(slurm, recipe, "salloc", "--nodes=2", *TINY, str(recipe)) as one,
        launched(slurm, other_recipe, *TINY, str(other_recipe)) as other,
    ):
        one.wait_for_a_step()
        other.wait_for_a_step()
        began = time.monotonic()
        os.kill(one.state.supervisor.pid, signal.SIGINT)
        told = one.end(EVERYTHING_DOWN_SECONDS)
        assert down("Ctrl-C in an allocation", began, RUN, told["run_id"]) < MOST_SECONDS
        assert (one.process.returncode, told["exit"]["kind"]) == (130, "interrupted")
        metrics = other.run_dir.attempt(1).metrics
        size = metrics.stat().st_size
        other.wait(lambda: metrics.stat().st_size > 2 * size)
        began = time.monotonic()
        os.kill(other.state.supervisor.pid, signal.SIGKILL)
        assert down("kill -9 of the launcher", began, RUN, other.run_dir.path.name) < MOST_SECONDS
        told = other.end()
    assert (other.process.returncode, told["exit"]["kind"]) == (137, "launcher_died")
