"""Looks at the checkout of an external program before any rank starts."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.catalog.engines.flavours import Flavour, flavour_of
from dsforge.launch.checkout import detect
from dsforge.plan.types import Program

_PACKED = "packed-refs"
_HEX = frozenset("0123456789abcdef")


def check_program(program: Program, root: Path) -> None:
    """Raise DsforgeError DSF215 when the folder, a file that marks the program, or its entry is not there."""
    folder, flavour = root / program.path, flavour_of(program.flavour)
    missing = [name for name in (program.entry, *flavour.marks) if not (folder / name).is_file()]
    if missing:
        hint, other = (
            "name the folder of the checkout in external.path, and its file in external.entry",
            detect(folder),
        )
        if other is not None and other is not flavour:
            hint = f"it looks like one of {other.name}: set external.flavour"
        raise DsforgeError(
            "DSF215",
            f"{folder} is no checkout of {program.flavour}: it has no {missing[0]}",
            Place(file=str(folder)),
            hint,
            exit_code=ExitCode.ENVIRONMENT,
        )


def unknown_revision(program: Program, root: Path) -> str | None:
    """Return in words how a checkout differs from what is known of its program, or None."""
    return unknown_in(flavour_of(program.flavour), root / program.path)


def unknown_in(flavour: Flavour, folder: Path) -> str | None:
    """Return in words that a folder's revision is none that a flavour's data come from, or None."""
    if not flavour.revisions:
        return None
    found = revision_of(folder)
    if found is not None and found.startswith(flavour.revisions):
        return None
    nearest = flavour.revisions[0]
    is_what = f"is at revision {found[:12]}" if found else "says nothing of its revision"
    return f"the checkout {is_what}; its options are taken to be those of {flavour.name} at {nearest}"


def missing_tools(program: Program, root: Path) -> str | None:
    """Return in words what is missing here to compile the part of the program that it compiles, or None.

    Headers may also lie where the compiler looks by itself, so this is no refusal.
    """
    builds, folder = flavour_of(program.flavour).builds, root / program.path
    if builds is None or not (folder / builds.file).is_file() or any(folder.glob(builds.product)):
        return None
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    missing = [name for name in builds.commands if shutil.which(name, path=path) is None]
    missing += [name for name in builds.modules if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    return f"the program compiles {builds.product} when it starts, and here is no {', '.join(missing)}"


def revision_of(folder: Path) -> str | None:
    """Return the commit that a checkout is at, read from git's files without running git."""
    try:
        git = _git_folder(folder)
        head = (git / "HEAD").read_text("utf-8").strip()
        if not head.startswith("ref: "):
            return _commit(head)
        return _ref(_common(git), git, head.removeprefix("ref: "))
    except (OSError, UnicodeDecodeError):
        return None


def _git_folder(folder: Path) -> Path:
    git = folder / ".git"
    if git.is_file():  # a worktree or a submodule
        return folder / git.read_text("utf-8").strip().removeprefix("gitdir: ")
    return git


def _common(git: Path) -> Path:
    file = git / "commondir"
    return git / file.read_text("utf-8").strip() if file.is_file() else git


def _ref(common: Path, git: Path, name: str) -> str | None:
    for place in (git, common):
        if (place / name).is_file():
            return _commit((place / name).read_text("utf-8").strip())
    lines = (common / _PACKED).read_text("utf-8").splitlines()
    packed = {ref: commit for commit, _, ref in (line.partition(" ") for line in lines)}
    return _commit(packed.get(name, ""))


def _commit(text: str) -> str | None:
    return text if len(text) >= 40 and _HEX.issuperset(text) else None
