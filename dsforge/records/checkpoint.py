"""What stands beside a checkpoint: without it, or with a size that differs, it is not whole."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MANIFEST_NAME = "dsforge-checkpoint.json"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class ParameterEntry:
    """One parameter under its layout-independent name. `partition_dim` None means replicated."""

    name: str
    shape: tuple[int, ...]
    partition_dim: int | None
    partition_stride: int


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    """Written last, after every rank's files are flushed. Sizes in bytes by relative path."""

    step: int
    consumed_samples: int
    trainer: str
    layout: dict[str, int]
    plan_sha256: str
    data: dict[str, str | int]
    """What fixes the order of samples: seed, sequence length, corpus."""
    files: dict[str, int]
    parameters: tuple[ParameterEntry, ...]
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> str:
        """Return the text that stands in the manifest file."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"


def read_manifest(folder: Path) -> CheckpointManifest | None:
    """Return the manifest of a whole checkpoint, or None when it is missing, torn or files differ."""
    try:
        data: dict[str, Any] = json.loads((folder / MANIFEST_NAME).read_text("utf-8"))
        data["parameters"] = tuple(
            ParameterEntry(**{**p, "shape": tuple(p["shape"])}) for p in data["parameters"]
        )
        manifest = CheckpointManifest(**data)
        sizes = {name: (folder / name).stat().st_size for name in manifest.files}
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return manifest if sizes == manifest.files else None


def step_folder_name(step: int) -> str:
    """Return the folder of a step, sortable by name."""
    return f"step-{step:08d}"


def whole_checkpoints(root: Path) -> list[tuple[int, Path]]:
    """Return (step, folder) of every whole checkpoint under a root, oldest first."""
    found = []
    if root.is_dir():
        for folder in root.glob("step-*"):
            number = folder.name.removeprefix("step-")
            if number.isdigit() and read_manifest(folder) is not None:
                found.append((int(number), folder))
    return sorted(found)
