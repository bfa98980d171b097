"""Versions of the recipe format: which one this build reads."""

from __future__ import annotations

from typing import get_args

from dsforge.base.errors import DsforgeError, Place
from dsforge.recipe.document import Document
from dsforge.recipe.model import Recipe

NEWEST: int = max(get_args(Recipe.model_fields["version"].annotation))
"""The version that this build reads."""


def check_version(document: Document, *, required: bool = False) -> None:
    """Raise DsforgeError DSF006 for a whole-number version other than the one that this build reads.

    With `required` the file has to name one: each file of a chain is migrated by itself.
    """
    place = document.place(("version",))
    if required and "version" not in document.data:
        raise DsforgeError("DSF010", "required key `version` is missing", place, "add `version`")
    version = document.data.get("version")
    if isinstance(version, int) and not isinstance(version, bool) and version != NEWEST:
        raise refuse_version(version, NEWEST, place)
    # what is no whole number is told with the other faults of the file


def refuse_version(version: int, newest: int, place: Place) -> DsforgeError:
    """Return the error for a version that cannot be read as it is."""
    if version > newest:
        hint = "upgrade dsforge"
    elif version < 1:
        hint = f"write `version: {newest}`"
    else:
        hint = "`dsforge config migrate` rewrites it, comments kept"
    message = f"this recipe has version {version}, this build reads version {newest}"
    return DsforgeError("DSF006", message, place, hint)
