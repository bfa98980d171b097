"""`validate --fix`: writes the edits that mend a recipe's errors into its text, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsforge.base.errors import DsforgeError, Finding, Fix, Severity
from dsforge.plan.resolve import examine
from dsforge.recipe.document import read_text
from dsforge.recipe.edit import edit
from dsforge.recipe.load import LoadedRecipe, load_recipe
from dsforge.recipe.origins import Layer, describe

_MAX_ROUNDS = 20
"""One mended fault may show another; rules that undo each other must not go on for ever."""
_IN_FILE = {Layer.DEFAULT, Layer.EXTENDS, Layer.RECIPE, Layer.PROFILE}


@dataclass(frozen=True, slots=True)
class Mended:
    """A recipe's text before and after, the edits made, and what is left to say about it.

    `unmended`: of each error that is left, why no edit mended it.
    """

    before: str
    after: str
    fixes: tuple[Fix, ...]
    findings: tuple[Finding, ...]
    unmended: tuple[str, ...]


def mend(
    path: Path, changes: Sequence[str], profile: str | None, environ: Mapping[str, str] | None
) -> Mended:
    """Return the recipe with the fixes of its errors applied; DsforgeError when it cannot be loaded.

    Warnings are advice and stay. A value that an argument or a variable sets is not the file's to mend; one
    that an extended file sets is mended here, not there.
    """
    before = after = read_text(path)
    done: list[Fix] = []
    tried: dict[Fix, str] = {}
    for _ in range(_MAX_ROUNDS):
        loaded = load_recipe(path, changes, profile, environ=environ, text=after)
        findings = examine(loaded)
        fixes = [fix for fix in (_own_fix(one, loaded) for one in findings) if fix and fix not in tried]
        if not fixes:
            break
        tried[fixes[0]] = f"`{fixes[0]}` was written, and did not mend it for good"
        try:
            after = edit(after, {fixes[0].key: fixes[0].value}, str(path))
        except DsforgeError as error:
            tried[fixes[0]] = error.message
            continue  # an alias stands in the way: the finding stays, and says what to change by hand
        done.append(fixes[0])
    why = (
        f"{one.code}: {_why_not(one, loaded, tried)}" for one in findings if one.severity is Severity.ERROR
    )
    return Mended(before, after, tuple(done), tuple(findings), tuple(dict.fromkeys(why)))


def _why_not(finding: Finding, loaded: LoadedRecipe, tried: Mapping[Fix, str]) -> str:
    if finding.fix is None:
        return "several edits mend it, or none in the recipe: its hint says which"
    fix = _own_fix(finding, loaded)
    if fix is None:
        key = finding.fix.key
        return f"{key} is not the file's: {describe(loaded.origin(key), None)}"
    return tried.get(fix, f"more than {_MAX_ROUNDS} edits would be needed")


def _own_fix(finding: Finding, loaded: LoadedRecipe) -> Fix | None:
    """Return the edit of the file that mends an error, or None where there is none."""
    if finding.severity is not Severity.ERROR or finding.fix is None:
        return None
    origin = loaded.origin(finding.fix.key)
    if origin.layer not in _IN_FILE:
        return None
    prefix = f"profiles.{origin.name}." if origin.layer is Layer.PROFILE else ""
    return Fix(prefix + finding.fix.key, finding.fix.value)
