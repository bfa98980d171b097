"""Reads a file that `dsforge tune` wrote; what it says is judged where plans are made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.json_file import read_object

_MOST_BYTES = 4 << 20


def read_measured(path: Path, place: Place, hint: str) -> Mapping[str, Any]:
    """Return the parsed file; DsforgeError DSF796 when it cannot be read as a JSON object."""
    try:
        return read_object(path, _MOST_BYTES)
    except OSError as error:
        raise DsforgeError("DSF796", f"{path} cannot be read: {error.strerror}", place, hint) from None
    except ValueError as error:
        raise DsforgeError("DSF796", f"{path} is not valid JSON: {error}", place, hint) from None
