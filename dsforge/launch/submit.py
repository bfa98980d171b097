"""Hands a run to a batch scheduler: made here, supervised in the job that is submitted for it."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dsforge.base.batch import Scheduler
from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.base.schedulers import SCHEDULERS
from dsforge.launch import machine
from dsforge.launch.command import describe_launch, safe_name
from dsforge.launch.create import create_run, disk_error
from dsforge.launch.dry_run import tell_starts
from dsforge.launch.preflight import look
from dsforge.launch.run import with_absolute_paths
from dsforge.launch.signals import StopSignals
from dsforge.launch.submission import Submission
from dsforge.launch.types import Command, LaunchDescription, LaunchRequest, OnEvent, ProgressEvent
from dsforge.plan.types import Plan
from dsforge.records import environment
from dsforge.records.run_dir import RunDir

_BY_FILE = ("pbs",)
"""Schedulers that show a job's variables to everybody, and read commas and quotes in them otherwise."""
_KEPT = (
    *("CUDA_HOME", "LANG", "LD_LIBRARY_PATH", "MASTER_PORT", "PYTHONPATH", "TORCH_EXTENSIONS_DIR"),
    *("XDG_CACHE_HOME", environment.SSH_ARGUMENTS),
)
"""Variables of who submits that a job's supervisor has too."""
_PLAIN = re.compile(r"[A-Za-z0-9_./+=@-]+")


def scheduler_of(plan: Plan) -> Scheduler | None:
    """Return the batch scheduler whose jobs a plan's ranks run in, or None."""
    return SCHEDULERS.get(plan.launch.launcher or "")


def is_to_submit(request: LaunchRequest) -> bool:
    """Tell whether a run is a scheduler's to start: inside of a job it is started right there."""
    scheduler = scheduler_of(request.plan)
    return scheduler is not None and not scheduler.holds(request.environ)


def submit_run(request: LaunchRequest, on_event: OnEvent) -> RunDir:
    """Make a run, submit its job and return its folder, which names the job.

    Signals wait until the job's id is written down, and then cancel it (DSF247). DsforgeError too when this
    host cannot, the folder cannot be written, the scheduler refuses (DSF241) or may have taken it (DSF248).
    """
    request = with_absolute_paths(request)
    scheduler = scheduler_of(request.plan)
    assert scheduler is not None, "it is to be submitted"
    found = look(request)
    if found.refusals:
        raise found.refusals[0]
    command = _command(request, RunDir(request.runs_root / safe_name(request.plan.name)))
    _check_paths(request, command)
    with StopSignals() as signals:
        submission = Submission(scheduler, create_run(request), request.plan, signals)
        run_dir = submission.run_dir
        try:
            submission.begin()
            command = _command(request, run_dir)
            if scheduler.launcher in _BY_FILE:
                _leave_variables(request, run_dir, command)
            job = submission.submit(command.argv, {**_outside(request), **command.environ})
        except OSError as error:
            submission.give_up(error)
            raise disk_error(run_dir.path, error) from error
    submission.obey()
    on_event(ProgressEvent(time.time(), "created", f"run {run_dir.path.name} in {run_dir.path}"))
    on_event(ProgressEvent(time.time(), "submitted", f"{scheduler.name} job {job} was submitted for it"))
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
    scheduler = scheduler_of(request.plan)
    assert scheduler is not None, "it is to be submitted"
    launcher = scheduler.launcher
    left = (run_dir.job_environment, run_dir.job_secrets) if launcher in _BY_FILE else ()
    files = (run_dir.job_file(launcher), run_dir.job_log, *left[: 1 + bool(request.plan.launch.env_from)])
    in_job = {scheduler.job_variable: "(the job's number)", "DSFORGE_PYTHON": sys.executable}
    return replace(
        tell_starts(described, request, found, in_job),
        command=_command(request, run_dir),
        written_files=(*described.written_files, *(file.name for file in files)),
    )


def _check_paths(request: LaunchRequest, command: Command) -> None:
    """Raise DsforgeError DSF245 for a path on the command line that a scheduler would take for more."""
    if request.plan.launch.launcher not in _BY_FILE:
        return
    odd = next((word for word in command.argv if not _PLAIN.fullmatch(word)), None)
    if odd is not None:
        raise DsforgeError(
            "DSF245",
            f"qsub cannot be given `{odd}`",
            Place(file=str(request.runs_root)),
            "name a folder of runs of A-Z a-z 0-9 _./+=@- with --runs",
            exit_code=ExitCode.ENVIRONMENT,
        )


def _leave_variables(request: LaunchRequest, run_dir: RunDir, command: Command) -> None:
    """Write what the job needs into files that its owner alone can read; OSError."""
    kept = {name: request.environ[name] for name in _KEPT if name in request.environ}
    secrets = {name: request.environ[name] for name in request.plan.launch.env_from}
    _write_privately(run_dir.job_environment, {**kept, **command.environ})
    if secrets:
        _write_privately(run_dir.job_secrets, secrets)


def _write_privately(path: Path, variables: Mapping[str, str]) -> None:
    path.touch(0o600, exist_ok=False)
    path.write_bytes(b"".join(os.fsencode(f"{name}={value}\0") for name, value in variables.items()))


def _outside(request: LaunchRequest) -> dict[str, str]:
    """Return the environment without what a job around this process says, which the new one would inherit."""
    kept = (
        "SLURM_CONF",
        "SLURM_CLUSTERS",
        "PBS_CONF_FILE",
        "PBS_EXEC",
        "PBS_HOME",
        "PBS_SERVER",
        "PBS_DEFAULT",
    )
    return {
        key: text
        for key, text in request.environ.items()
        # Under SBATCH_WAIT, sbatch would not answer before the job's end.
        if key in kept or not key.startswith(("SLURM_", "PBS_", "SBATCH_WAIT"))
    }


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
    argv = _COMMANDS[request.plan.launch.launcher or ""](request, run_dir)
    return Command(argv=argv, environ=environ, cwd=request.recipe_root)


def _sbatch(request: LaunchRequest, run_dir: RunDir) -> tuple[str, ...]:
    # sbatch replaces what stands behind a percent sign.
    log = str(run_dir.job_log).replace("%", "%%")
    words = ("sbatch", "--parsable", f"--output={log}", f"--chdir={request.recipe_root}")
    return (*words, str(run_dir.bundle / "launch.sh"))


def _qsub(_request: LaunchRequest, run_dir: RunDir) -> tuple[str, ...]:
    told = f"{environment.RUN}={run_dir.path}"
    return ("qsub", "-j", "oe", "-o", str(run_dir.job_log), "-v", told, str(run_dir.bundle / "launch.sh"))


_COMMANDS = {"slurm": _sbatch, "pbs": _qsub}
