"""From a loaded recipe to its plan and bundle, reading the hostfile it names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.files import read_bounded
from dsforge.plan.resolve import make_plan
from dsforge.plan.types import Plan
from dsforge.recipe.load import LoadedRecipe
from dsforge.render.bundle import Bundle, render

_LARGEST_HOSTFILE = 16 * 2**20


def recipe_root(loaded: LoadedRecipe) -> Path:
    """Return the folder that relative paths of the recipe start from."""
    return loaded.path.resolve().parent


def plan_and_bundle(loaded: LoadedRecipe, allow: frozenset[str] = frozenset()) -> tuple[Plan, Bundle]:
    """Return plan and bundle; DsforgeError when a rule refuses or the hostfile cannot be used."""
    plan = make_plan(loaded, allow)
    # Where the command was typed, and the folder a repository lies in, are no part of a bundle.
    findings = tuple(_from_root(finding, recipe_root(loaded)) for finding in plan.findings)
    plan = plan.model_copy(update={"findings": findings})
    return plan, bundle_for(plan, loaded)


def bundle_for(plan: Plan, loaded: LoadedRecipe) -> Bundle:
    """Return the bundle of a plan of a recipe; DsforgeError when its hostfile cannot be used."""
    hostfile = None
    if plan.hostfile is not None:
        path = recipe_root(loaded) / plan.hostfile
        place = loaded.place("cluster.hostfile")
        hostfile = read_hostfile(path, place, "name an existing file, relative to the recipe"), str(path)
    return render(plan, hostfile, loaded.place)


def read_hostfile(path: Path, place: Place | None = None, hint: str = "name an existing file") -> str:
    """Return a hostfile's text; DsforgeError DSF044."""
    try:
        return read_bounded(path, _LARGEST_HOSTFILE)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise DsforgeError("DSF044", f"hostfile {path} cannot be read: {reason}", place, hint) from None


def _from_root(finding: dict[str, Any], root: Path) -> dict[str, Any]:
    place = finding["place"]
    if not place or "line" not in place:
        return finding
    return {**finding, "place": {**place, "file": os.path.relpath(Path(place["file"]).resolve(), root)}}


def bundle_of(loaded: LoadedRecipe) -> Bundle:
    """Return the bundle of a recipe that no rule refuses."""
    return plan_and_bundle(loaded)[1]
