"""Hands a run to Slurm: made here, supervised in the batch job that is submitted for it."""

from __future__ import annotations

import os
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

from dsforge.base import processes, slurm
from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode, ExitKind
from dsforge.base.files import write_atomically
from dsforge.launch import machine
from dsforge.launch.command import describe_launch
from dsforge.launch.create import create_run, disk_error
from dsforge.launch.dry_run import tell_starts
from dsforge.launch.launchers.slurm import in_allocation
from dsforge.launch.preflight import look
from dsforge.launch.run import with_absolute_paths
from dsforge.launch.types import Command, LaunchDescription, LaunchRequest, OnEvent, ProgressEvent
from dsforge.records import environment
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import QUEUED, RunExit, RunState, write_state


def is_to_submit(request: LaunchRequest) -> bool:
    """Tell whether a run is Slurm's to start: inside of an allocation it is started right there."""
    return request.plan.launch.launcher == "slurm" and not in_allocation(request.environ)


def submit_run(request: LaunchRequest, on_event: OnEvent) -> RunDir:
    """Make a run, submit its job and return its folder, which names the job.

    DsforgeError when this host cannot, the folder cannot be written, or Slurm refuses (DSF241).
    """
    request = with_absolute_paths(request)
    found = look(request)
    if found.refusals:
        raise found.refusals[0]
    run_dir = create_run(request)
    try:
        state = _queued(request, run_dir)
        write_state(run_dir.state, state)
        command = _command(request, run_dir)
        try:
            job = slurm.submit(command.argv, {**_outside(request), **command.environ})
        except slurm.SlurmError as error:
            how = RunExit(int(ExitCode.ENVIRONMENT), ExitKind.ENVIRONMENT.value, str(error))
            write_state(run_dir.state, replace(state, state="failed", exit=how, ended_time=time.time()))
            raise DsforgeError(
                "DSF241",
                f"Slurm did not take the job: {error}",
                hint="compare what launch.slurm asks for with `sinfo` and `sacctmgr show assoc`",
                exit_code=ExitCode.ENVIRONMENT,
            ) from error
        write_atomically(run_dir.slurm_job, f"{job}\n")
    except OSError as error:
        raise disk_error(run_dir.path, error) from error
    on_event(ProgressEvent(time.time(), "created", f"run {run_dir.path.name} in {run_dir.path}"))
    on_event(ProgressEvent(time.time(), "submitted", f"Slurm job {job} was submitted for it"))
    return run_dir


def describe_submission(request: LaunchRequest) -> LaunchDescription:
    """Return what `submit_run` would submit and write, and why it would not, touching nothing."""
    request = with_absolute_paths(request)
    found = look(request)
    described = describe_launch(
        request,
        bash=found.bash,
        deepspeed=found.deepspeed,
        ops_dir=found.ops_dir,
        python_path=machine.python_path(request.environ),
        refusals=found.refusals,
    )
    run_dir = RunDir(described.run_dir)
    in_job = {slurm.JOB_ID: "(the job's number)", "DSFORGE_PYTHON": sys.executable}
    return replace(
        tell_starts(described, request, found, in_job),
        command=_command(request, run_dir),
        written_files=(*described.written_files, run_dir.slurm_job.name, run_dir.job_log.name),
    )


def _outside(request: LaunchRequest) -> dict[str, str]:
    """Return the environment without what a job around this process says, which the new one would inherit."""
    kept = ("SLURM_CONF", "SLURM_CLUSTERS")
    return {key: text for key, text in request.environ.items() if key in kept or not key.startswith("SLURM_")}


def _queued(request: LaunchRequest, run_dir: RunDir) -> RunState:
    submitter = processes.identify(os.getpid())
    assert submitter is not None, "this process runs"
    return RunState(
        run_id=run_dir.path.name,
        name=request.plan.name,
        state=QUEUED,
        attempt=1,
        host=socket.gethostname(),
        boot_id=processes.boot_id(),
        supervisor=submitter,
        started_time=time.time(),
    )


def _command(request: LaunchRequest, run_dir: RunDir) -> Command:
    """Return what submits a run's own launch.sh, whose first lines say what the job asks for."""
    environ = {
        environment.RUN: str(run_dir.path),
        environment.ROOT: str(request.recipe_root),
        "DSFORGE_PYTHON": sys.executable,
        # Tools that compile kernels are looked for beside the launcher first, as everywhere.
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), request.environ.get("PATH", os.defpath))),
    }
    if request.corpus is not None:
        environ[environment.CORPUS] = request.corpus
    if (python_path := machine.python_path(request.environ)) is not None:
        environ["PYTHONPATH"] = python_path
    environ.update(request.extra_environ)
    # sbatch replaces what stands behind a percent sign.
    log = str(run_dir.job_log).replace("%", "%%")
    argv = (
        *("sbatch", "--parsable", f"--output={log}", f"--chdir={request.recipe_root}"),
        str(run_dir.bundle / "launch.sh"),
    )
    return Command(argv=argv, environ=environ, cwd=request.recipe_root)
