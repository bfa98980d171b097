"""DSF142: an external program is named, and named only where it runs."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    section, trainer = facts.recipe.external, facts.recipe.trainer
    if trainer == "external" and section is None:
        hint = "add `external: {flavour: ..., path: ...}`"
        yield Found("`trainer: external` without a program", "trainer", hint)
    elif section is not None and trainer != "external":
        yield Found(
            f"a program is named, but the trainer is {trainer}",
            "external",
            "set `trainer: external`, or remove the section",
            Fix("trainer", "external"),
        )
    elif section is not None and section.entry is None and flavour_of(section.flavour).entry is None:
        hint = "name the file to run in external.entry"
        yield Found(f"flavour {section.flavour} runs no file by itself", "external.flavour", hint)


RULE = Rule(
    code="DSF142",
    name="external-section",
    severity=Severity.ERROR,
    summary="an external program is named, and named only where it runs",
    why="Without it there is nothing to start; beside another trainer it would be ignored.",
    check=_check,
    firm=True,
)
