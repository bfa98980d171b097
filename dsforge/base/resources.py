"""Finds `templates/`, `recipes/` and `hostfiles/` in a checkout and in an installed wheel."""

from __future__ import annotations

from pathlib import Path

import dsforge

_PACKAGE = Path(dsforge.__file__).resolve().parent


def package_parent() -> Path:
    """Return the folder that has to be on the path for `import dsforge` to find this package."""
    return _PACKAGE.parent


def folder(name: str) -> Path:
    """Return a shipped top-level folder; FileNotFoundError means a broken installation."""
    for candidate in (_PACKAGE / "_shared" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"dsforge's own folder {name!r} is missing; reinstall dsforge")
