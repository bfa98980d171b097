"""Makes a run directory: the bundle as it will be run, and the manifest."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import socket
import time
from pathlib import Path

from dsforge.base import slurm
from dsforge.base.canonical import sha256_text, sha256_value
from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.base.files import write_atomically
from dsforge.launch import facts
from dsforge.launch.command import checkpoint_dir, safe_name
from dsforge.launch.external_resume import note_layout
from dsforge.launch.types import LaunchRequest
from dsforge.records.run_dir import RunDir
from dsforge.records.run_manifest import RunManifest


def create_run(request: LaunchRequest) -> RunDir:
    """Make the run's folder with bundle and manifest; DsforgeError, and no folder, when the disk refuses."""
    run_dir = None
    try:
        run_dir = _make_folder(request)
        request.bundle.write(run_dir.bundle)
        checkpoint_dir(request, run_dir).mkdir(parents=True, exist_ok=True)
        note_layout(request)
        write_atomically(run_dir.manifest, _manifest(request, run_dir).to_json())
        if slurm.is_job(job := request.environ.get(slurm.JOB_ID, "")):
            write_atomically(run_dir.allocation, f"{job}\n")
    except OSError as error:
        if run_dir is not None:
            shutil.rmtree(run_dir.path, ignore_errors=True)
        raise disk_error(request.runs_root, error) from error
    return run_dir


def vanished(run_dir: RunDir) -> DsforgeError:
    """Return the error for a run whose folder was moved or removed while it ran."""
    return DsforgeError(
        "DSF211",
        "the folder of the run vanished while it ran; its ranks were ended",
        Place(file=str(run_dir.path)),
        "leave a run's folder where it is until the run has ended",
        exit_code=ExitCode.ENVIRONMENT,
    )


def disk_error(place: Path, error: Exception) -> DsforgeError:
    """Return the error for a run directory that cannot be written."""
    return DsforgeError(
        "DSF209",
        f"a folder of the run cannot be written: {getattr(error, 'strerror', None) or error}",
        Place(file=str(getattr(error, "filename", None) or place)),
        "free space or permissions there; --runs, checkpoint.dir and XDG_CACHE_HOME name the folders",
        exit_code=ExitCode.ENVIRONMENT,
    )


def _make_folder(request: LaunchRequest) -> RunDir:
    root = request.runs_root.absolute()
    root.mkdir(parents=True, exist_ok=True)
    while True:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        run_dir = RunDir(root / f"{safe_name(request.plan.name)}-{stamp}-{secrets.token_hex(2)}")
        try:
            run_dir.path.mkdir()
        except FileExistsError:
            continue
        return run_dir


def _manifest(request: LaunchRequest, run_dir: RunDir) -> RunManifest:
    files = sorted(path for path in run_dir.bundle.rglob("*") if path.is_file())
    return RunManifest(
        run_id=run_dir.path.name,
        name=request.plan.name,
        created_time=time.time(),
        command=request.command,
        recipe_path=request.recipe_path,
        recipe_text=request.recipe_text,
        recipe_sha256=sha256_text(request.recipe_text),
        plan_sha256=sha256_value(request.plan.to_json_value()),
        bundle_sha256={
            str(path.relative_to(run_dir.bundle)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
        },
        versions=facts.versions(),
        revision=facts.revision(request.recipe_root),
        host=socket.gethostname(),
        secret_names=request.plan.launch.env_from,
        checkpoint_dir=str(checkpoint_dir(request, run_dir)) if request.plan.checkpoint.dir else None,
    )
