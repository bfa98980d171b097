"""What a dry run tells of each host is what the launchers start there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dsforge.launch.types import HostStart, LaunchDescription
from dsforge.ops.start import StartOptions, describe
from dsforge.recipe.load import load_recipe
from tests.support.recipes import SMALL, write

ODD = "a 'b' $c"
SECRET = "s3cret"
HOSTS = ("h1", "h2")


def _described(folder: Path, launcher: str, *, nodes: int = 2, **environ: str) -> LaunchDescription:
    """Describe a launch on hosts of four ranks, where the launchers' programs answer as they should."""
    programs = folder / "bin"
    programs.mkdir()
    for name, says in (
        ("mpirun.openmpi", "mpirun (Open MPI) 4.1.4"),
        ("mpiexec.hydra", "HYDRA build details"),
    ):
        (programs / name).write_text(f"#!/bin/sh\necho '{says}'\n")
        (programs / name).chmod(0o755)
    (folder / "hosts").write_text("h1 slots=4\nh2 slots=4\n")
    hostfile = ", hostfile: hosts" if launcher not in ("slurm", "local") else ""
    text = SMALL.replace(
        "nodes: 1, gpus_per_node: 8", f"nodes: {nodes}, gpus_per_node: {8 // nodes}{hostfile}"
    )
    launch = {"launcher": launcher, "env": {"ODD": ODD, "NCCL_X": ODD}, "env_from": ["HF_TOKEN"]}
    recipe = load_recipe(write(folder, f"{text}launch: {json.dumps(launch)}\n"))
    path = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder), "MASTER_PORT": "4000"}
    options = StartOptions(folder / "runs", ("dsforge",), {**path, "HF_TOKEN": SECRET, **environ})
    described = describe(recipe, options)
    assert described.untold is None
    assert not (folder / "runs").exists()
    assert SECRET not in repr(described)
    return described


def _option(words: tuple[str, ...], name: str) -> str:
    (found,) = [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    return found


def _check(start: HostStart, run: Path) -> None:
    """Every host's ranks have the recipe's variables and the run's."""
    assert start.cwd == str(run / "attempt-1")
    wanted = {
        "ODD": ODD,
        "NCCL_X": ODD,
        "OMP_NUM_THREADS": "1",
        "DSFORGE_PLAN": str(run / "bundle" / "plan.json"),
        "DSFORGE_ATTEMPT_DIR": str(run / "attempt-1"),
    }
    assert {name: start.environ[name] for name in wanted} == wanted
    assert not {"HF_TOKEN", "DSFORGE_TELL", "PWD"} & set(start.environ)
    assert start.argv[-2:] == ("dsforge.rank.main", "dsforge.train.main")


@pytest.mark.parametrize("launcher", ["ssh", "pdsh", "torchrun", "openmpi", "mpich", "slurm"])
def test_every_host_is_told(launcher: str, tmp_path: Path):
    described = _described(tmp_path, launcher)
    hosts = HOSTS if launcher != "slurm" else (None, None)
    assert [(one.node, one.host) for one in described.starts] == list(enumerate(hosts))
    for one in described.starts:
        _check(one, described.run_dir)
        assert one.processes == (4 if launcher in ("openmpi", "mpich", "slurm") else 1)


def test_over_ssh_each_host_has_its_own_command(tmp_path: Path):
    described = _described(tmp_path, "ssh", DSFORGE_SSH_ARGS="-F 'a b'")
    for node, one in enumerate(described.starts):
        assert _option(one.argv, "--node_rank") == str(node)
        assert (_option(one.argv, "--master_addr"), _option(one.argv, "--master_port")) == ("h1", "4000")
        assert one.through[:4] == ("ssh", "-T", "-F", "a b")
        assert one.through[-2] == one.host


def test_torchruns_c10d_store_is_on_the_first_host_alone(tmp_path: Path):
    (tmp_path / "x").mkdir()
    described = _described(tmp_path / "x", "torchrun")
    assert _option(described.starts[1].argv, "--node-rank") == "1"
    recipe = load_recipe(tmp_path / "x" / "recipe.yaml", ["launch.rendezvous=c10d"])
    environ = {"PATH": f"{tmp_path}/x/bin:/usr/bin:/bin", "MASTER_PORT": "4000", "HF_TOKEN": SECRET}
    starts = describe(recipe, StartOptions(tmp_path / "runs", (), environ)).starts
    assert [_option(one.argv, "--rdzv-conf") for one in starts] == ["is_host=1", "is_host=0"]
    assert [_option(one.argv, "--local-addr") for one in starts] == [*HOSTS]
    assert {_option(one.argv, "--rdzv-endpoint") for one in starts} == {"h1:4000"}
    assert [one.environ["DSFORGE_NODE"] for one in starts] == ["0", "1"]
    assert not [word for one in starts for word in one.argv if word.startswith("--node-rank")]


def test_mpi_and_slurm_start_all_by_one_command(tmp_path: Path):
    (tmp_path / "mpi").mkdir()
    mpi = _described(tmp_path / "mpi", "openmpi")
    assert mpi.started[0] == str(tmp_path / "mpi" / "bin" / "mpirun.openmpi")
    assert mpi.started[-4:] == mpi.starts[0].argv[-4:]
    assert [word for word in mpi.started if word.startswith("h")] == ["h1,h1,h1,h1", "h2,h2,h2,h2"]
    assert mpi.starts[0].environ["MASTER_ADDR"] == "h1"
    (tmp_path / "job").mkdir()
    job = _described(tmp_path / "job", "slurm")
    assert job.command.argv[0] == "sbatch"
    assert job.started[:4] == ("srun", "--nodes=2", "--ntasks=8", "--ntasks-per-node=4")


def test_a_script_that_cannot_tell_says_why(tmp_path: Path):
    _described(tmp_path, "openmpi")
    (tmp_path / "bin" / "mpirun.openmpi").write_text("#!/bin/sh\necho 'mpirun (Open MPI) 5.0'\n")
    options = StartOptions(tmp_path / "runs", (), {"PATH": f"{tmp_path}/bin:/bin", "HF_TOKEN": SECRET})
    other = describe(load_recipe(tmp_path / "recipe.yaml"), options)
    assert other.untold == "dsforge: no mpirun of Open MPI 4 on the PATH"
    assert other.starts == ()


@pytest.mark.parametrize(("launcher", "nodes"), [("local", 1), ("pdsh", 2)])
def test_deepspeeds_own_runner_starts_just_that(
    launcher: str, nodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from deepspeed.launcher import runner

    described = _described(tmp_path, launcher, nodes=nodes)
    there = tmp_path / "there"
    there.mkdir()
    (there / "hostfile").write_text(described.bundle_files["hostfile"])
    words = [
        str(there / "hostfile") if word.endswith("/hostfile") else word for word in described.started[1:]
    ]
    called: list[list[str]] = []

    class Done:
        returncode = 0

        def wait(self) -> None:
            """There is nothing to wait for."""

    def note(command: list[str], **_given: Any) -> Done:
        called.append(command)
        return Done()

    monkeypatch.setattr(subprocess, "Popen", note)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/pdsh")
    runner.main(words)
    (command,) = called
    if launcher == "pdsh":
        assert command[:6] == ["pdsh", "-S", "-f", "1024", "-w", ",".join(HOSTS)]
        command = [word for word in command[6:] if not word.startswith(("export ", "cd "))]
    for node, one in enumerate(described.starts):
        assert [word.replace("%n", str(node)) for word in command] == list(one.argv)
