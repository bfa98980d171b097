"""What offload to a disk needs of this host: a folder on it, and the library that reads and writes it."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.base.files import why_unwritable
from dsforge.launch import op_cache
from dsforge.launch.types import LaunchRequest
from dsforge.rank import ops

_SECONDS = 20.0
PATH_HINT = "name another offload.path, or mend that place"


def check_disk(request: LaunchRequest) -> None:
    """Raise DsforgeError when a plan offloads to a disk that this host's ranks could not use."""
    offload = request.plan.offload
    if offload.path is None:
        return
    check_folder(request.recipe_root / offload.path)
    folder = op_cache.ops_dir(request.environ)
    if op_cache.folder_of(op_cache.DISK) not in ops.built(folder) and not has_libaio(request.environ):
        raise op_cache.no_disk("libaio.h is not installed")


def check_folder(folder: Path) -> None:
    """Raise DsforgeError DSF803 where nothing can be written in a folder, which may have to be made."""
    if (why := why_unwritable(folder)) is not None:
        message = f"nothing can be offloaded to the disk: {why}"
        raise DsforgeError("DSF803", message, Place(file=str(folder)), PATH_HINT, ExitCode.ENVIRONMENT)


def has_libaio(environ: Mapping[str, str]) -> bool:
    """Tell whether the compiler finds libaio's header; true where there is no compiler to ask."""
    words = [environ.get("CC", "cc"), *shlex.split(environ.get("CFLAGS", "")), "-E", "-include", "libaio.h"]
    try:
        asked = subprocess.run(
            [*words, "-x", "c", os.devnull],
            env=dict(environ),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return asked.returncode == 0
