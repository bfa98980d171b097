"""A job of the user's own around `dsforge launch` that Slurm has queued again: it goes on in its run."""

from __future__ import annotations

from dsforge.base import lease, slurm
from dsforge.base.canonical import sha256_value
from dsforge.launch.create import disk_error
from dsforge.launch.types import LaunchRequest, RunOutcome
from dsforge.records.run_dir import RunDir
from dsforge.records.run_manifest import read_run_manifest
from dsforge.records.run_state import RunState
from dsforge.runs.registry import list_runs


def requeued_run(request: LaunchRequest) -> RunDir | None:
    """Return the run that this job began before Slurm queued it again, or None.

    It is of the same plan, and nobody on this host supervises it. DsforgeError where runs cannot be read.
    """
    job = request.environ.get(slurm.JOB_ID, "")
    if not slurm.is_job(job) or request.environ.get(slurm.RESTART_COUNT, "0") == "0":
        return None
    plan = sha256_value(request.plan.to_json_value())
    try:
        runs = [RunDir(run.path) for run in list_runs(request.runs_root)]
    except OSError as error:
        raise disk_error(request.runs_root, error) from error
    own = (run for run in runs if _job_of(run) == job and not lease.is_held(run.lease))
    for run_dir in own:  # the newest first
        manifest = read_run_manifest(run_dir.manifest)
        if manifest is not None and manifest.plan_sha256 == plan:
            return run_dir
    return None


def outcome_of(run_dir: RunDir, state: RunState) -> RunOutcome:
    """Return how a run ended that a job has nothing left to do in."""
    assert state.exit is not None, "it has ended"
    return RunOutcome(
        run_id=run_dir.path.name,
        run_dir=run_dir.path,
        attempts=state.attempt,
        exit=state.exit,
        losses={},
        validation_losses={},
        last_metrics=None,
        tail=(),
    )


def _job_of(run_dir: RunDir) -> str | None:
    try:
        return run_dir.allocation.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
