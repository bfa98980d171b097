"""What stands beside a checkpoint: without it, or with a file that differs from it, it is not whole."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dsforge.base.canonical import loads
from dsforge.base.files import check_regular
from dsforge.records.typed import build

MANIFEST_NAME = "dsforge-checkpoint.json"
SCHEMA_VERSION = 3
_PREFIX = "step-"
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class ParameterEntry:
    """One parameter under its layout-independent name. `partition_dim` None means replicated."""

    name: str
    shape: tuple[int, ...]
    partition_dim: int | None
    partition_stride: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Size in bytes and BLAKE2b (RFC 7693, 16 bytes, hexadecimal) of one file."""

    size_bytes: int
    blake2b: str


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    """Written last, after every rank's files are flushed. Files by relative path."""

    step: int
    consumed_samples: int
    run_id: str
    """The run that wrote it; empty for a bundle that was run by hand."""
    trainer: str
    layout: dict[str, int]
    plan_sha256: str
    data: dict[str, str | int]
    """What fixes the order of samples: seed, sequence length, corpus and what is in it."""
    files: dict[str, FileEntry]
    parameters: tuple[ParameterEntry, ...]
    model: dict[str, Any]
    """What decides the model's function besides its weights: heads, norms, positions."""
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> str:
        """Return the text that stands in the manifest file."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"


@dataclass(frozen=True, slots=True)
class NotWhole:
    """Why a checkpoint cannot be used, and the file that shows it."""

    file: Path
    reason: str


def file_digest(path: Path) -> str:
    """Return a file's BLAKE2b as a `FileEntry` holds it; OSError when it cannot be read."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=_DIGEST_BYTES)).hexdigest()


def read_manifest(folder: Path) -> CheckpointManifest | NotWhole:
    """Return the manifest of a checkpoint whose files all have their size, else why it is not whole.

    Contents are not read: `find_damage` does that.
    """
    path = folder / MANIFEST_NAME
    manifest = _parsed(path)
    if isinstance(manifest, NotWhole):
        return manifest
    number = step_number(folder)
    if number is not None and number != manifest.step:
        return NotWhole(path, f"is of step {manifest.step}, which is not the folder's")
    faults = (_wrong_size(folder / name, entry) for name, entry in sorted(manifest.files.items()))
    return next((fault for fault in faults if fault is not None), manifest)


def _parsed(path: Path) -> CheckpointManifest | NotWhole:
    try:
        check_regular(path)
        data = loads(path.read_text("utf-8"))
    except OSError as error:
        return NotWhole(path, _unreadable(error))
    except ValueError:
        return NotWhole(path, "is not JSON")
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        return NotWhole(path, f"has schema version {version}, this build reads {SCHEMA_VERSION}")
    try:
        manifest = build(CheckpointManifest, data)
    except TypeError:
        return NotWhole(path, "lacks a field, or has one that this build does not know or of another type")
    return manifest if manifest.files else NotWhole(path, "lists no files")


def find_damage(path: Path, entry: FileEntry) -> NotWhole | None:
    """Read one file of a checkpoint and return what differs from its entry, or None."""
    if (fault := _wrong_size(path, entry)) is not None:
        return fault
    try:
        found = file_digest(path)
    except OSError as error:
        return NotWhole(path, _unreadable(error))
    if found != entry.blake2b:
        return NotWhole(path, f"has other bytes than were written: BLAKE2b {found}, not {entry.blake2b}")
    return None


def _wrong_size(path: Path, entry: FileEntry) -> NotWhole | None:
    try:
        size = path.stat().st_size
    except OSError as error:
        return NotWhole(path, _unreadable(error))
    if size != entry.size_bytes:
        return NotWhole(path, f"has {size} bytes, {entry.size_bytes} were written")
    return None


def _unreadable(error: OSError) -> str:
    return "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"


def step_folder_name(step: int) -> str:
    """Return the folder of a step, sortable by name."""
    return f"{_PREFIX}{step:08d}"


def step_number(folder: Path) -> int | None:
    """Return the step in a checkpoint folder's name, or None for any other name."""
    number = folder.name.removeprefix(_PREFIX)
    has_step = folder.name.startswith(_PREFIX) and number.isascii() and number.isdecimal()
    return int(number) if has_step else None


def step_folders(root: Path) -> list[tuple[int, Path]]:
    """Return (step, folder) of all that is named like a checkpoint, whole or not, oldest first.

    No such root means none; OSError when it cannot be listed.
    """
    try:
        entries = list(root.iterdir())
    except FileNotFoundError:
        return []
    return sorted((step, path) for path in entries if (step := step_number(path)) is not None)


def whole_checkpoints(root: Path) -> list[tuple[int, Path]]:
    """Return (step, folder) of every whole checkpoint under a root, oldest first; see `step_folders`."""
    return [
        (step, folder)
        for step, folder in step_folders(root)
        if isinstance(read_manifest(folder), CheckpointManifest)
    ]
