"""What `tune` may write over: a file of its own."""

from __future__ import annotations

from pathlib import Path

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.recipe.measured_file import read_measured

ANOTHER = "`-o FILE` writes another file"


def check_own(path: Path, kind: str) -> None:
    """Return where there is no such file, an empty one or one of this kind; DsforgeError DSF799 or DSF796."""
    if not path.exists() or (path.is_file() and path.stat().st_size == 0):
        return
    place = Place(file=str(path))
    if read_measured(path, place, f"{ANOTHER}; this one is not overwritten").get("kind") != kind:
        message = f"what is there is no file of {kind}, and is not overwritten"
        raise DsforgeError("DSF799", message, place, ANOTHER, exit_code=ExitCode.FINDINGS)
