"""What would keep a job object from being taken, or its pods from finding the run."""

from __future__ import annotations

import importlib.util
from pathlib import Path, PurePath

from dsforge.base.canonical import loads
from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.launch.inputs import files_read
from dsforge.launch.kubernetes.api import Cluster
from dsforge.launch.kubernetes.job import filling
from dsforge.launch.types import LaunchRequest
from dsforge.plan.job_types import Kubernetes
from dsforge.render.kubernetes import fill
from dsforge.render.launchers.kubernetes import MANIFEST


def check_request(request: LaunchRequest) -> None:
    """Raise DsforgeError DSF701 without the client, DSF707 for a path of the run that pods would not have."""
    options = request.plan.launch.kubernetes
    assert options is not None, "planned for Kubernetes"
    if importlib.util.find_spec("kubernetes") is None:
        Cluster(None)  # raises it
    checkpoints = request.plan.checkpoint.dir
    paths = [
        ("the folder of runs", request.runs_root),
        ("the recipe's folder", request.recipe_root),
        *([("checkpoint.dir", request.recipe_root / checkpoints)] if checkpoints is not None else []),
        *(("a file that ranks read", Path(file)) for file in files_read(request)),
    ]
    for what, path in paths:
        _check_path(what, path, options)


def _check_path(what: str, path: Path, options: Kubernetes) -> None:
    plain = PurePath(path)
    mounts = [PurePath(mount) for mount in options.volumes.values()]
    if any(plain.is_relative_to(mount) for mount in mounts) and ".." not in plain.parts:
        return
    raise DsforgeError(
        "DSF707",
        f"{what} is {path}, where the pods have no volume: launch.kubernetes.volumes has "
        + (", ".join(map(str, mounts)) or "none"),
        Place(file=str(path)),
        "work from a folder of a volume that is mounted at the same path here and in the pods; `--runs` "
        "names the folder of runs, XDG_CACHE_HOME that of the built-in corpus",
        exit_code=ExitCode.ENVIRONMENT,
    )


def ask_cluster(request: LaunchRequest) -> None:
    """Have the API server say whether it would take job object and secret; DsforgeError DSF702 to 706."""
    rendered = loads(request.bundle.files[MANIFEST])
    attempt = request.runs_root / "attempt-1"
    manifest = fill(rendered, filling(attempt, request.plan.name, request.environ))
    cluster = Cluster(rendered["metadata"].get("namespace"))
    cluster.create(manifest, dry_run=True)
    if request.plan.launch.env_from:
        cluster.create_secret(str(manifest["metadata"]["name"]), {}, dry_run=True)
