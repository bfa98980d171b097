"""`dsforge launch` from one host onto two others, which share nothing with it but files and a network."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from dsforge.base import lease, shell
from dsforge.launch import launchers
from dsforge.launch.machine import some_ports
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import RunState, read_state
from dsforge.records.streams import MetricsLine, WorldReport, parse_line, read_lines
from tests.cluster.conftest import need
from tests.cluster.hosts import Cluster
from tests.cluster.runs import EVERYTHING_DOWN_SECONDS, TWO_NODES, gone_within, marked
from tests.support.recipes import ROOT, write

pytestmark = pytest.mark.cluster

PATIENCE_SECONDS = 300.0
LAUNCHERS = ("ssh", "pdsh")
OTHERS = ("openmpi", "mpich", "torchrun")
"""Supervised as the others are: their own is how ranks start, and what follows when one is killed."""
ODD = "a 'b' \"c\", $(touch PWNED) `id` \\ %n%h%% ;"
SECRET = "s3cret 'x' $y"
STEPS = "train.steps=8"
ENDLESS = ("train.steps=100000", "optimizer.lr_schedule=constant")


def recipe_for(cluster: Cluster, folder: Path, *, launcher: str, **launch: Any) -> Path:
    need(*(program for program, _ in launchers.LAUNCHERS[launcher].programs))
    (folder / "hosts").write_text("".join(f"{host.address} slots=1\n" for host in cluster.workers))
    text = TWO_NODES.replace("gpu: cpu", "gpu: cpu, hostfile: hosts")
    launch["launcher"] = launcher
    launch["env"] = {"GLOO_SOCKET_IFNAME": "eth0", **launch.get("env", {})}
    return write(folder, f"{text}launch: {json.dumps(launch)}\n")


def environ_of(cluster: Cluster) -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": os.environ["HOME"],
        "PYTHONPATH": str(ROOT),
        "PDSH_SSH_ARGS_APPEND": cluster.ssh_options,
        "DSFORGE_SSH_ARGS": cluster.ssh_options,
        "HF_TOKEN": SECRET,
    }


class Launched:
    """`dsforge launch --json` on a cluster's first host, while it runs; `tiny`: around the tiny trainer."""

    def __init__(self, cluster: Cluster, recipe: Path, *words: str, tiny: bool = False) -> None:
        self.runs = recipe.parent / "runs"
        launch = ("dsforge.cli", "launch", str(recipe), "--json", "--runs", str(self.runs), *words)
        program = ("tests.launch_support.as_job", str(recipe)) if tiny else launch
        self._module = program[0].encode()
        self._environ = environ_of(cluster)
        self.process = subprocess.Popen(
            cluster.head.inside(sys.executable, "-m", *program),
            cwd=recipe.parent,
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=(recipe.parent / "told").open("ab"),
            text=True,
        )

    @property
    def run_dir(self) -> RunDir:
        # Beside it lies, for moments, what a preflight tries the file system with.
        return RunDir(next(self.runs.glob("[!.]*")))

    @property
    def state(self) -> RunState | None:
        return read_state(self.run_dir.state)

    def lines(self, attempt: int = 1) -> list[Any]:
        folder = self.run_dir.attempt(attempt)
        streams = [folder.rank_stream(node) for node in (0, 1)] + [folder.metrics]
        return [parse_line(line) for stream in streams for _, line in read_lines(stream)]

    def reports(self, attempt: int = 1) -> dict[int, WorldReport]:
        return {line.rank: line for line in self.lines(attempt) if isinstance(line, WorldReport)}

    def wait_for_ranks(self) -> None:
        self._wait(lambda: len(self.reports()) == 2)

    def wait_for_a_step(self, attempt: int = 1) -> None:
        self._wait(lambda: any(isinstance(line, MetricsLine) for line in self.lines(attempt)))

    def _wait(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (any(self.runs.glob("[!.]*")) and ready()):
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def supervisor(self) -> int:
        """Return the supervisor's process id as this machine numbers it."""
        children = [int(pid) for pid in _children(self.process.pid)]
        while self._module not in Path("/proc", str(children[0]), "cmdline").read_bytes().split(b"\0")[:4]:
            children = [int(pid) for pid in _children(children[0])]
        return children[0]

    def stop(self) -> None:
        """Have `dsforge runs stop` end it, on the host that supervises it."""
        there = ("nsenter", f"--target={self.supervisor()}", "--net", "--pid", "--uts", "--mount")
        words = ("runs", "stop", self.run_dir.path.name, "--runs", str(self.runs))
        # The supervisor is the first process there: with its end the kernel ends this one, too.
        subprocess.run([*there, sys.executable, "-m", "dsforge.cli", *words], env=self._environ, check=False)

    def end(self, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        said, _ = self.process.communicate(timeout=seconds)
        return json.loads(said)


def _children(pid: int) -> list[str]:
    return Path("/proc", str(pid), "task", str(pid), "children").read_text().split()


@contextmanager
def launched(cluster: Cluster, recipe: Path, *words: str, tiny: bool = False) -> Iterator[Launched]:
    one = Launched(cluster, recipe, *words, tiny=tiny)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait()


def trainer_of(one: Launched, rank: int) -> int:
    """Return the process id of a rank's trainer as this machine numbers it."""
    host = [path for path in marked("RANK", str(rank)) if one.run_dir.path.name in _variables(path)]
    (pid,) = [int(path.name) for path in host if b"dsforge.train.main" in _words(path) and _is_trainer(path)]
    return pid


def _variables(process: Path) -> str:
    return (process / "environ").read_text(errors="replace")


def _words(process: Path) -> list[bytes]:
    return (process / "cmdline").read_bytes().split(b"\0")


def _is_trainer(process: Path) -> bool:
    return b"dsforge.rank.main" not in _words(process)


@pytest.fixture(scope="module")
def alone(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of the same two ranks on one machine."""
    folder = tmp_path_factory.mktemp("alone")
    text = TWO_NODES.replace("nodes: 2, gpus_per_node: 1", "nodes: 1, gpus_per_node: 2")
    command = (sys.executable, "-m", "dsforge.cli", "launch", str(write(folder, text)), "--json")
    done = subprocess.run(
        [*command, STEPS], cwd=folder, env=environ_of(cluster), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)["losses"]


@pytest.mark.parametrize("launcher", LAUNCHERS + OTHERS)
def test_two_hosts_train_as_one_and_come_back(cluster: Cluster, tmp_path: Path, launcher: str, alone):
    """Every variable arrives byte for byte, and a rank that is killed costs nothing but steps."""
    launch = {"env": {"ODD": ODD}, "env_from": ["HF_TOKEN"], "restarts": 1}
    recipe = recipe_for(cluster, tmp_path, launcher=launcher, **launch)
    with launched(cluster, recipe, STEPS, "checkpoint.every_steps=1", "checkpoint.resume=auto") as one:
        one.wait_for_ranks()
        for rank in (0, 1):
            seen = Path("/proc", str(trainer_of(one, rank)), "environ").read_bytes().split(b"\0")
            assert f"ODD={ODD}".encode() in seen
            assert f"HF_TOKEN={SECRET}".encode() in seen
        commands = [(path / "cmdline").read_bytes() for path in Path("/proc").glob("[0-9]*") if path.exists()]
        assert not [words for words in commands if b"s3cret" in words]
        one.wait_for_a_step()
        os.kill(trainer_of(one, 1), signal.SIGKILL)
        told = one.end()
        assert one.process.returncode == 0, (tmp_path / "told").read_text()
        assert gone_within(told["run_id"], 0)
        reports, state = one.reports(2), one.state
    assert state is not None
    assert state.restarts[0].why.startswith(f"rank 1 on host {cluster.workers[1].name} was killed by SIGKILL")
    assert told["attempts"] == 2
    assert {rank: (r.node, r.local_rank, r.host) for rank, r in reports.items()} == {
        node: (node, 0, host.name) for node, host in enumerate(cluster.workers)
    }
    assert told["losses"] == pytest.approx(alone, abs=1e-5)
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size < 10**6]
    assert not [path for path in written if b"s3cret" in path.read_bytes()]
    assert not list(tmp_path.rglob("PWNED"))


def test_what_a_dry_run_tells_trains_when_it_is_done_by_hand(cluster: Cluster, tmp_path: Path, alone):
    """The told files, and on each host the told command under the told variables; the test supervises.

    Under torchrun's c10d rendezvous, with the hosts in another order than torchrun would number them.
    """
    recipe = recipe_for(cluster, tmp_path, launcher="torchrun", rendezvous="c10d", env={"ODD": ODD})
    hosts = cluster.workers[::-1]
    (tmp_path / "hosts").write_text("".join(f"{host.address} slots=1\n" for host in hosts))
    command = (sys.executable, "-m", "dsforge.cli", "launch", str(recipe), STEPS, "--dry-run", "--json")
    done = subprocess.run(
        [*command, "--runs", str(tmp_path / "runs")],
        env={**environ_of(cluster), "MASTER_PORT": str(some_ports(1)[0])},
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    attempt = RunDir(Path(told["run"])).attempt(1)
    bundle = RunDir(Path(told["run"])).bundle
    attempt.path.mkdir(parents=True)
    bundle.mkdir()
    for name, text in told["files"].items():
        (bundle / name).write_text(text)
    with lease.hold(attempt.lease), ExitStack() as started:
        processes = []
        for one in told["hosts"]:
            variables = [f"{name}={text}" for name, text in one["environment"].items()]
            remote = (
                f"cd {shell.quote(one['cwd'])} && exec {shell.join(['env', *variables, *one['command']])}"
            )
            ssh = cluster.head.inside("ssh", *cluster.ssh_options.split(), one["host"], remote)
            process = started.enter_context(subprocess.Popen(ssh, stdout=subprocess.PIPE))
            started.callback(process.kill)
            processes.append(process)
        for process in processes:
            output, _ = process.communicate(timeout=PATIENCE_SECONDS)
            assert process.returncode == 0, output.decode()
    lines = [parse_line(line) for _, line in read_lines(attempt.metrics)]
    assert [line.loss for line in lines if isinstance(line, MetricsLine)] == pytest.approx(alone, abs=1e-5)
    reports = [parse_line(line) for node in (0, 1) for _, line in read_lines(attempt.rank_stream(node))]
    placed = {(line.rank, line.node, line.host) for line in reports if isinstance(line, WorldReport)}
    assert placed == {(node, node, host.name) for node, host in enumerate(hosts)}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_request_to_stop_ends_in_a_checkpoint(cluster: Cluster, tmp_path: Path, launcher: str):
    with launched(cluster, recipe_for(cluster, tmp_path, launcher=launcher), *ENDLESS) as one:
        one.wait_for_a_step()
        os.kill(one.supervisor(), signal.SIGINT)
        told = one.end(EVERYTHING_DOWN_SECONDS)
        assert gone_within(told["run_id"], 0)
        steps = max(line.step for line in one.lines() if isinstance(line, MetricsLine))
        saved = [path.name for path in one.run_dir.checkpoints.iterdir()]
    assert (one.process.returncode, told["exit"]["kind"]) == (130, "interrupted")
    assert [name for name in saved if str(steps) in name], (saved, steps)
