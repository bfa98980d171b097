"""Versions of the recipe format: which one this build reads, and the way from an older one."""

from __future__ import annotations

from typing import get_args

from dsforge.base.errors import DsforgeError
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
    if not isinstance(version, int) or isinstance(version, bool) or version == NEWEST:
        return  # what is no whole number is told with the other faults of the file
    message = f"this recipe has version {version}, this build reads version {NEWEST}"
    if version > NEWEST:
        raise DsforgeError("DSF006", message, place, "upgrade dsforge")
    if version < 1:
        raise DsforgeError("DSF006", message, place, f"write `version: {NEWEST}`")
    raise DsforgeError("DSF006", message, place, "`dsforge config migrate` rewrites it, comments kept")
