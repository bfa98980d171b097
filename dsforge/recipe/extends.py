"""`extends`: a recipe that lies over another file, which may extend a third."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dsforge.base.errors import DsforgeError, Place
from dsforge.recipe.document import Document, parse, read_text
from dsforge.recipe.layers import lay_over, mark
from dsforge.recipe.origins import Layer
from dsforge.recipe.paths import rebase
from dsforge.recipe.variables import interpolate
from dsforge.recipe.version import check_version

MAX_FILES = 16
"""Files of one chain; nobody can say any more where a value comes from long before that."""


def read_chain(path: Path, text: str, environ: Mapping[str, str] | None) -> Document:
    """Return the document of a recipe's text laid over the files it extends.

    References to variables are resolved but for those in profiles. DsforgeError DSF004 for a file that is
    missing, extends itself, or ends too long a chain; the place is the `extends` key that asked for it.
    """
    return _read(path, text, environ, ())


def _read(path: Path, text: str, environ: Mapping[str, str] | None, trail: tuple[Path, ...]) -> Document:
    document = parse(text, str(path))
    mark(document, Layer.EXTENDS if trail else Layer.RECIPE)
    check_version(document, required=bool(trail) or document.data.get("extends") is not None)
    interpolate(document, environ, skip=frozenset({"profiles"}))
    if "extends" not in document.data:
        return document
    named = document.data.pop("extends")
    if named is None:
        return document
    place = document.place(("extends",))
    trail = (*trail, path)
    parent = _parent(named, place, trail)
    base = _read(parent, _parent_text(parent, named, place), environ, trail)
    rebase(base.data, parent.resolve().parent, path.resolve().parent)
    base.data.pop("name", None)  # a job is named by its own file
    lay_over(base, document)
    return base


def _parent(named: object, place: Place, trail: tuple[Path, ...]) -> Path:
    if not isinstance(named, str) or not named or "\0" in named:
        hint = "for example `extends: ../base.yaml`"
        raise DsforgeError("DSF004", "`extends` is not the path of a recipe", place, hint)
    parent = trail[-1].parent / named
    seen = [one.resolve() for one in trail]
    if parent.resolve() in seen:
        circle = [*(one.name for one in trail[seen.index(parent.resolve()) :]), parent.name]
        raise DsforgeError(
            "DSF004", f"extends itself: {' -> '.join(circle)}", place, "remove one of these `extends`"
        )
    if len(trail) >= MAX_FILES:
        raise DsforgeError(
            "DSF004", f"the chain of `extends` is longer than {MAX_FILES} files", place, "merge some of them"
        )
    return parent


def _parent_text(parent: Path, named: object, place: Place) -> str:
    try:
        return read_text(parent, may_wait=False)
    except DsforgeError as fault:
        message = f"cannot extend `{named}`: {fault.message}"
        hint = "name a recipe, relative to the folder of this file"
        raise DsforgeError("DSF004", message, place, hint) from None
