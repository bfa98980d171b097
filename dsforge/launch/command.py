"""The command and environment of a run. Pure: the same request gives the same description."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dsforge.base.errors import DsforgeError
from dsforge.launch.launchers import launcher_of
from dsforge.launch.types import Command, LaunchDescription, LaunchRequest
from dsforge.records import environment
from dsforge.records.run_dir import RunDir
from dsforge.records.way_on import Beginning

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 80
RUN_ID_SHAPE = "YYYYMMDD-HHMMSS-xxxx"
"""What stands for the time and the random part of a run that is only described."""
FREE_PORT = "(a free port)"
"""What stands for the port where ranks meet, when the user names none: it is chosen when they start."""
_RUN_FILES = ("manifest.json", "state.json", "lease", "bundle/", "attempt-1/", "checkpoints/")


def safe_name(name: str) -> str:
    """Return a name fit for a folder: [A-Za-z0-9._-], never empty, never starting with `-` or `.`."""
    return _UNSAFE.sub("-", name)[:_LONGEST_NAME].strip("-.") or "run"


def checkpoint_dir(request: LaunchRequest, run_dir: RunDir) -> Path:
    """Return where checkpoints lie: the recipe's folder, relative to the recipe, or the run's own."""
    if request.plan.checkpoint.dir is None:
        return run_dir.checkpoints
    return request.recipe_root / request.plan.checkpoint.dir


def beginning(request: LaunchRequest, run_dir: RunDir) -> Beginning:
    """Return how a run was started, as far as going on from it needs it."""
    checkpoint = request.plan.checkpoint
    folder = checkpoint_dir(request, run_dir)
    return Beginning(request.command, folder, checkpoint.dir is not None, checkpoint.resume)


def build_command(
    request: LaunchRequest,
    run_dir: RunDir,
    attempt: int,
    *,
    bundle: Path,
    bash: Path,
    deepspeed: Path | None,
    master_port: str,
    ops_dir: Path,
    python_path: str | None = None,
) -> Command:
    """Return what starts one attempt: a bundle's launch.sh, as a user can run it by hand."""
    caller = {**request.environ, **request.plan.launch.env}
    attempt_dir = run_dir.attempt(attempt)
    here = launcher_of(request.plan).here
    environ = {
        **({} if here else {environment.HOSTFILE: str(attempt_dir.hostfile)}),
        environment.ROOT: str(request.recipe_root),
        environment.ATTEMPT_DIR: str(attempt_dir.path),
        environment.CHECKPOINT_DIR: str(checkpoint_dir(request, run_dir)),
        environment.RUN_ID: run_dir.path.name,
        environment.LEASE: str(attempt_dir.lease),
        "MASTER_PORT": master_port,
        "TORCH_EXTENSIONS_DIR": str(ops_dir),
    }
    if deepspeed is not None:
        environ["DSFORGE_DEEPSPEED"] = str(deepspeed)
        # Tools that compile kernels (ninja) are looked for by name beside the launcher first.
        environ["PATH"] = os.pathsep.join(filter(None, (str(deepspeed.parent), caller.get("PATH"))))
    if request.corpus is not None:
        environ[environment.CORPUS] = request.corpus
    if "CUDA_VISIBLE_DEVICES" in caller:
        environ[environment.VISIBLE_DEVICES] = caller["CUDA_VISIBLE_DEVICES"]
    if request.plan.accelerator == "cpu":
        environ["DS_ACCELERATOR"] = "cpu"
        environ["OMP_NUM_THREADS"] = caller.get("OMP_NUM_THREADS", "1")
    if python_path is not None:
        environ["PYTHONPATH"] = python_path
    environ.update(request.extra_environ)
    return Command(
        argv=(str(bash), str(bundle / "launch.sh")),
        environ=environ,
        cwd=attempt_dir.path,
    )


def describe_launch(
    request: LaunchRequest,
    *,
    bash: Path | None,
    deepspeed: Path | None,
    ops_dir: Path,
    python_path: str | None = None,
    refusals: tuple[DsforgeError, ...] = (),
) -> LaunchDescription:
    """Return what `launch_run` would start and write. Programs that are not here are left to the PATH."""
    run_dir = RunDir(request.runs_root / f"{safe_name(request.plan.name)}-{RUN_ID_SHAPE}")
    command = build_command(
        request,
        run_dir,
        1,
        bundle=run_dir.bundle,
        bash=bash or Path("bash"),
        deepspeed=deepspeed,
        master_port=request.environ.get("MASTER_PORT") or FREE_PORT,
        ops_dir=ops_dir,
        python_path=python_path,
    )
    return LaunchDescription(
        run_dir=run_dir.path,
        command=command,
        secret_names=request.plan.launch.env_from,
        bundle_files=dict(sorted(request.bundle.files.items())),
        written_files=_RUN_FILES,
        refusals=refusals,
    )
