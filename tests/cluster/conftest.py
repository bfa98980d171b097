"""Hosts by ssh, and a Slurm of two nodes, on this machine: made once, ended by process id."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import Cluster
from tests.cluster.runs import EVERYTHING_DOWN_SECONDS, marked
from tests.support.needed import absent
from tests.support.recipes import ROOT

_PROGRAMS = (
    *("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "squeue", "sinfo"),
    "unshare",
)
_PATIENCE_SECONDS = 60.0
_SBIN = "/usr/sbin:/usr/local/sbin"

_CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
SlurmdParameters=config_overrides
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=2000 State=UNKNOWN
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=2000 State=UNKNOWN
PartitionName=train Nodes=node[1-2] Default=YES MaxTime=INFINITE State=UP
"""


Down = Callable[[str, float, str, str], float]

_ANOTHER_HOST = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""What a process id means elsewhere it does not mean here: by this alone ranks are on another host."""


def need(*programs: str) -> None:
    """Skip a test, or fail it where that is asked for, without these programs and root."""
    missing = [name for name in programs if shutil.which(name, path=f"{os.environ['PATH']}:{_SBIN}") is None]
    if missing:
        absent(f"not installed: {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("starts daemons, which needs root")


def _need_another_host() -> None:
    """Skip a test where this machine's root may not make namespaces, as in a container without the right."""
    done = subprocess.run([*_ANOTHER_HOST, "true"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"root may not make other hosts here: {done.stderr.strip()}")


def _end(started: list[subprocess.Popen[bytes]]) -> None:
    for process in reversed(started):
        process.terminate()
        try:
            process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two hosts to run on, one to stand in for them, and one to start from."""
    need("sshd", "ssh", "ssh-keygen", "pdsh", "ip", "unshare")
    _need_another_host()
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        try:
            made.up(workers=2, spares=1)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"root may not make networks here: {error.stderr.decode().strip()}")
        yield made
    finally:
        made.down()


class Slurm:
    """Clients of the test's own Slurm; `environ` is what they and the jobs they submit are given."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.environ = environ

    def run(self, *words: object, cwd: Path | None = None, check: bool = True) -> str:
        done = subprocess.run(
            [str(word) for word in words],
            cwd=cwd,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_SECONDS,
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def job(self, number: str) -> dict[str, str]:
        """Return what Slurm knows of a job."""
        words = self.run("scontrol", "--oneliner", "show", "job", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    need(*_PROGRAMS)
    _need_another_host()
    path = f"{os.environ['PATH']}:{_SBIN}"
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool-node1", "spool-node2"):
        (folder / name).mkdir()
    host = socket.gethostname().partition(".")[0]
    configuration = folder / "slurm.conf"
    configuration.write_text(_CONFIGURATION.format(host=host, folder=folder, ports=_free_ports(3)))
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    environ = {
        "PATH": f"{Path(sys.executable).parent}:{path}",
        "HOME": os.environ["HOME"],
        "SLURM_CONF": str(configuration),
        "PYTHONPATH": str(ROOT),
    }
    munge = [f"--{name}={folder}/munge.{name}" for name in ("socket", "pid-file", "log-file", "seed-file")]
    daemons = (
        ("munged", "--foreground", "--force", f"--key-file={key}", *munge),
        ("slurmctld", "-D", "-f", str(configuration)),
        ("slurmd", "-D", "-N", "node1", "-f", str(configuration)),
        (*_ANOTHER_HOST, "slurmd", "-D", "-N", "node2", "-f", str(configuration)),
    )
    started: list[subprocess.Popen[bytes]] = []
    made = Slurm(environ)
    try:
        for words in daemons:
            with (folder / f"{words[0]}.log").open("ab") as log:
                started.append(
                    subprocess.Popen(words, env=environ, stdout=log, stderr=log, start_new_session=True)
                )
            if words[0] == "munged":
                _until((folder / "munge.socket").exists)
        _until(lambda: made.run("sinfo", "-h", "-t", "idle", "-o", "%D", check=False).strip() == "2")
        yield made
    finally:
        for number in made.run("squeue", "-h", "-o", "%A", check=False).split():
            made.run("scancel", number, check=False)
        _until(lambda: not made.run("squeue", "-h", check=False).strip(), required=False)
        for process in started[len(daemons) - 1 :]:
            process.kill()  # unshare hears no other signal, and takes along what it started
        _end(started)


def _until(ready, *, required: bool = True) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not ready():
        if time.monotonic() > deadline:
            assert not required, "the test's daemons did not come up"
            return
        time.sleep(0.2)


@pytest.fixture
def down(record_property: Callable[[str, object], None]) -> Down:
    """Wait until no process of a run, or of an attempt, is left on any host; return and note the seconds."""

    def wait(fault: str, since: float, name: str, value: str) -> float:
        while marked(name, value):
            assert time.monotonic() - since < EVERYTHING_DOWN_SECONDS, fault
            time.sleep(0.1)
        seconds = time.monotonic() - since
        record_property(f"seconds until all is down after {fault}", f"{seconds:.1f}")
        return seconds

    return wait
