"""What a program finds on the ranks of two hosts: every value as written, its place, its secret."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dsforge.launch.launchers import LAUNCHERS
from dsforge.ops.bundles import bundle_of
from dsforge.recipe.load import load_recipe
from tests.cluster.conftest import Slurm, need
from tests.cluster.hosts import Cluster
from tests.support.hostile import HOSTILE
from tests.support.recipes import ROOT, write

pytestmark = pytest.mark.cluster

PATIENCE_SECONDS = 120.0
SECRET = "s3cret 'x' $y\nof two lines"
_HARD = " \t'\"\\$`;,%&|<>(){}[]*?~#!=:@^+-aé\u2028"
_DRAW = random.Random(5)
VALUES = {
    f"VALUE_{number}": text
    for number, text in enumerate(
        [
            *(*HOSTILE, "", " ", " a ", "\t", "%n%h%%", "a=b,c;d", "!x", "'", '"', '""', "\\\\", "\\n"),
            *("".join(_DRAW.choices(_HARD, k=_DRAW.randint(1, 12))) for _ in range(40)),
        ]
    )
}
RECIPE = """\
version: 1
model: {arch: gpt, layers: 1, hidden: 8, heads: 1, vocab: 16}
cluster: {nodes: 2, gpus_per_node: 1, CLUSTER}
batch: {global: 2, seq_len: 1}
trainer: external
"""
PROBE = """\
import json, os, pathlib, time
here = pathlib.Path(__file__).parent
seen = {os.fsdecode(name): os.fsdecode(text) for name, text in os.environb.items()}
made = here / f"making-{os.environ['RANK']}"
made.write_text(json.dumps(seen), "ascii")
made.rename(here / f"rank-{os.environ['RANK']}.json")
while not (here / "go").exists():
    time.sleep(0.05)
"""


def bundle(folder: Path, launch: dict[str, Any], cluster: str) -> Path:
    """Render a recipe whose ranks run the probe; return its script."""
    (folder / "probe").mkdir()
    (folder / "probe" / "probe.py").write_text(PROBE)
    # In a recipe `${` asks for a variable, `$${` is its way to write it.
    values = {name: text.replace("${", "$${") for name, text in VALUES.items()}
    launch = {**launch, "env": values, "env_from": ["HF_TOKEN"]}
    program = {"flavour": "script", "path": "probe", "entry": "probe.py"}
    sections = f"launch: {json.dumps(launch)}\nexternal: {json.dumps(program)}\n"
    recipe = load_recipe(write(folder, RECIPE.replace("CLUSTER", cluster) + sections))
    bundle_of(recipe).write(folder / "bundle")
    return folder / "bundle" / "launch.sh"


@contextmanager
def started(words: Sequence[str], folder: Path, environ: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, env=environ, stdout=log, stderr=log)
    try:
        yield process
    finally:
        (folder / "probe" / "go").touch()
        process.kill()
        process.wait()


def found_on_ranks(folder: Path, ended: Callable[[], bool]) -> list[dict[str, str]]:
    """Return the variables of both ranks, which then wait."""
    files = [folder / "probe" / f"rank-{rank}.json" for rank in (0, 1)]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not all(file.exists() for file in files):
        assert not ended(), (folder / "log").read_text()
        assert time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.1)
    seen = [json.loads(file.read_text()) for file in files]
    for file in files:
        file.unlink()
    return seen


def keepers_of_the_secret(folder: Path) -> list[Path]:
    """Return the files of a folder, and the command lines of all hosts, in which the secret stands."""
    written = [path for path in folder.rglob("*") if path.is_file()]
    commands = [path / "cmdline" for path in Path("/proc").glob("[0-9]*")]
    return [path for path in (*written, *commands) if b"s3cret" in _bytes(path)]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def check_rank(seen: dict[str, str], rank: int) -> None:
    assert {name: seen[name] for name in VALUES} == VALUES
    assert seen["HF_TOKEN"] == SECRET
    place = {name: seen[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "CROSS_RANK")}
    assert place == {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "CROSS_RANK": str(rank)}


def environ_of(cluster: Cluster) -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": os.environ["HOME"],
        "PYTHONPATH": str(ROOT),
        "PDSH_SSH_ARGS_APPEND": cluster.ssh_options,
        "DSFORGE_SSH_ARGS": cluster.ssh_options,
        "HF_TOKEN": SECRET,
    }


@pytest.mark.parametrize("launcher", ["ssh", "pdsh", "openmpi", "mpich", "torchrun", "c10d"])
def test_everything_reaches_the_program(cluster: Cluster, tmp_path: Path, launcher: str):
    """Through the real programs, with GPUs chosen and hosts in another order than torchrun's own."""
    launch = {"launcher": "torchrun", "rendezvous": "c10d"} if launcher == "c10d" else {"launcher": launcher}
    need(*(program for program, _ in LAUNCHERS[launch["launcher"]].programs))
    hosts = cluster.workers[::-1]
    (tmp_path / "hosts").write_text("".join(f"{host.address} slots=4\n" for host in hosts))
    choice = f"{hosts[0].address}:3@{hosts[1].address}:1"
    section = f"gpu: a100-sxm-80gb, hostfile: hosts, include: '{choice}', interface: auto"
    script = bundle(tmp_path, launch, section)
    words = cluster.head.inside("bash", str(script))
    with started(words, tmp_path, environ_of(cluster)) as process:
        for rank, seen in enumerate(found_on_ranks(tmp_path, lambda: process.poll() is not None)):
            check_rank(seen, rank)
            assert (seen["CUDA_VISIBLE_DEVICES"], seen["CUDA_DEVICE_ORDER"]) == (
                str(3 - 2 * rank),
                "PCI_BUS_ID",
            )
            assert (seen["GLOO_SOCKET_IFNAME"], seen["NCCL_SOCKET_IFNAME"]) == ("eth0", "=eth0")
            assert (seen["NCCL_DEBUG"], seen["TORCH_NCCL_ASYNC_ERROR_HANDLING"]) == ("WARN", "3")
        assert keepers_of_the_secret(tmp_path) == []
        (tmp_path / "probe" / "go").touch()
        assert process.wait(PATIENCE_SECONDS) == 0, (tmp_path / "log").read_text()
    assert keepers_of_the_secret(tmp_path) == []
    assert not list(tmp_path.rglob("PWNED"))


def test_a_launch_that_fails_on_the_way_keeps_no_secret(cluster: Cluster, tmp_path: Path):
    """One of the hosts, where nothing listens, is never reached: its file of secrets is not read either."""
    need("pdsh")
    hosts = (cluster.workers[0], cluster.head)
    (tmp_path / "hosts").write_text("".join(f"{host.address} slots=1\n" for host in hosts))
    script = bundle(tmp_path, {"launcher": "pdsh"}, "gpu: cpu, hostfile: hosts")
    (tmp_path / "probe" / "go").touch()
    with started(cluster.head.inside("bash", str(script)), tmp_path, environ_of(cluster)) as process:
        assert process.wait(PATIENCE_SECONDS) != 0
    (tmp_path / "probe" / "rank-0.json").unlink()  # what the probe itself has found
    assert "ssh exited with exit code 255" in (tmp_path / "log").read_text()
    assert (tmp_path / "dsforge-run" / "attempt-1" / "environment").exists()
    assert keepers_of_the_secret(tmp_path) == []


def test_everything_reaches_the_tasks_of_a_job(slurm: Slurm, tmp_path: Path):
    """By sbatch and srun; nor does Slurm itself show the secret to who asks it for the job."""
    script = bundle(
        tmp_path, {"launcher": "slurm", "slurm": {"partition": "train", "time": "10m"}}, "gpu: cpu"
    )
    (tmp_path / "log").touch()
    slurm.environ["HF_TOKEN"] = SECRET
    job = slurm.run("sbatch", "--parsable", script, cwd=tmp_path).strip()
    try:
        for rank, seen in enumerate(found_on_ranks(tmp_path, lambda: _has_failed(slurm, job))):
            check_rank(seen, rank)
            assert "GLOO_SOCKET_IFNAME" not in seen
        for words in (
            ("show", "job", "--details", job),
            ("write", "batch_script", job, "-"),
            ("show", "step"),
        ):
            shown = slurm.run("scontrol", *words, cwd=tmp_path)
            assert job in shown or "#SBATCH" in shown
            assert "s3cret" not in shown
        assert keepers_of_the_secret(tmp_path) == []
        (tmp_path / "probe" / "go").touch()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while slurm.job(job)["JobState"] != "COMPLETED":
            assert time.monotonic() < deadline, (tmp_path / f"slurm-{job}.out").read_text()
            time.sleep(0.2)
    finally:
        (tmp_path / "probe" / "go").touch()
    assert keepers_of_the_secret(tmp_path) == []
    assert not list(tmp_path.rglob("PWNED"))


def _has_failed(slurm: Slurm, job: str) -> bool:
    return slurm.job(job)["JobState"] == "FAILED"
