"""What a manifest records besides the plan: versions and the recipe's git revision. Imports no engine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from dsforge.rank.facts import versions
from dsforge.records.run_manifest import Revision

__all__ = ("revision", "versions")

_GIT_SECONDS = 20.0


def revision(folder: Path) -> Revision | None:
    """Return the git revision of a folder's repository, or None outside one or without git."""
    commit = _git(folder, "rev-parse", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    if not commit or changed is None:
        return None
    return Revision(commit=commit, dirty=bool(changed))


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - the user's own git, wherever it is
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip()
