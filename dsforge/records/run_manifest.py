"""`manifest.json`: what was run, enough to say later which bytes, versions and revision made a result."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from dsforge.base.canonical import dumps, loads
from dsforge.base.files import read_own
from dsforge.records.typed import build

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Revision:
    """The git revision of the recipe's repository; `dirty` when tracked files differ from it."""

    commit: str
    dirty: bool


@dataclass(frozen=True, slots=True)
class RunManifest:
    """Written once before the ranks start. Holds names of secret variables, never a value of one."""

    run_id: str
    name: str
    created_time: float
    command: tuple[str, ...]
    recipe_path: str
    recipe_text: str
    recipe_sha256: str
    plan_sha256: str
    bundle_sha256: dict[str, str]
    versions: dict[str, str]
    revision: Revision | None
    host: str
    secret_names: tuple[str, ...]
    checkpoint_dir: str | None = None
    """The folder that the recipe names for checkpoints, from the root; None for the run's own."""
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> str:
        """Return the text of manifest.json."""
        return dumps(asdict(self))


def read_run_manifest(path: Path) -> RunManifest | None:
    """Return a run's manifest, or None when the file is missing or not one of ours."""
    try:
        return build(RunManifest, loads(read_own(path)))
    except (OSError, ValueError, TypeError):
        return None
