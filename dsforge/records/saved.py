"""`dsforge-saved.json` in a folder of an external program's checkpoints: under which layout they are saved.

Their own files cannot be looked into without running what is in them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from dsforge.base.canonical import dumps, loads
from dsforge.base.files import check_regular, write_atomically
from dsforge.records.typed import build

FILE_NAME = "dsforge-saved.json"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Saved:
    """What decides the rows of the embedding: `vocab` rounded up to a multiple of `divisor` times `tp`."""

    flavour: str
    tp: int
    vocab: int
    divisor: int
    padded_vocab: int
    schema_version: int = SCHEMA_VERSION


def read_saved(folder: Path) -> Saved | None:
    """Return what stands in a folder of checkpoints; None where nothing does, or nothing of this version."""
    try:
        check_regular(folder / FILE_NAME)
        found = build(Saved, loads((folder / FILE_NAME).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return found if found.schema_version == SCHEMA_VERSION and found.tp > 0 else None


def write_saved(folder: Path, saved: Saved) -> None:
    """Write it; OSError when the disk refuses."""
    write_atomically(folder / FILE_NAME, dumps(asdict(saved)))
