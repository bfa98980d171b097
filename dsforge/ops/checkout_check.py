"""`validate` for checkouts of external programs: which they are, and whether a run of a recipe fits them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dsforge.base.errors import DsforgeError, Finding, Place, Severity
from dsforge.catalog.engines.flavours import Flavour, flavour_of
from dsforge.launch.checkout import lacking, missing, recognise
from dsforge.launch.program import check_program, revision_of, unknown_in
from dsforge.ops.bundles import recipe_root
from dsforge.plan.resolve import make_plan
from dsforge.recipe.load import LoadedRecipe

_KEY = "external.path"
_LOOKED = "what runs are started with was looked for in its own text"


def check_recipe_checkout(loaded: LoadedRecipe) -> list[Finding]:
    """Return what speaks against the checkout that a legal recipe names; nothing where it is not here."""
    section = loaded.recipe.external
    if section is None or loaded.recipe.trainer != "external":
        return []
    root = recipe_root(loaded)
    folder = root / section.path
    if not folder.is_dir():
        return []
    program = make_plan(loaded).external
    assert program is not None, "the trainer is external"
    place = loaded.place(_KEY)
    try:
        check_program(program, root)
    except DsforgeError as fault:
        return [Finding(fault.code, Severity.ERROR, fault.message, _KEY, place, fault.hint)]
    found = [replace(one, key=_KEY, place=place) for one in lacking(program, folder)]
    unknown = unknown_in(flavour_of(program.flavour), folder)
    if unknown is not None:
        found.append(Finding("DSF216", Severity.WARNING, unknown, _KEY, place, _LOOKED))
    return found


def check_checkout(folder: Path) -> tuple[str, list[Finding]]:
    """Return which program at which revision a folder holds, and what recipes could not ask of it.

    DsforgeError DSF215 when it is no checkout.
    """
    flavour, revision = recognise(folder), revision_of(folder)
    return f"{flavour.name} {revision[:12] if revision else 'of unknown revision'}", list(
        _findings(flavour, folder)
    )


def _findings(flavour: Flavour, folder: Path) -> Iterator[Finding]:
    is_tree = flavour.takes == "configuration"
    names = [row.option.partition(".")[0] if is_tree else row.option for row in flavour.rows]
    yield from missing(flavour, folder, names, Severity.WARNING)
    unknown = unknown_in(flavour, folder)
    if unknown is not None:
        yield Finding("DSF216", Severity.WARNING, unknown, None, Place(file=str(folder)), _LOOKED)
