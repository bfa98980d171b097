"""DSF143: what is passed on to an external program is what its parser takes, and contradicts no key."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.external import placeholders
from dsforge.external.mapping import contradictions
from dsforge.external.options import Fault, option_table, read
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    section = facts.recipe.external
    if section is None or facts.recipe.trainer != "external":
        return
    for fault in sorted(_faults(facts), key=lambda fault: fault.at):
        yield Found(fault.message, f"external.arguments.{fault.at}", fault.hint)


def _faults(facts: Facts) -> Iterator[Fault]:
    section = facts.recipe.external
    assert section is not None
    flavour, passed = flavour_of(section.flavour), section.arguments
    if flavour.takes == "anything":
        yield from placeholders.faults(passed, facts.values)
    else:
        yield from read(passed, option_table(flavour.name))[1]
        yield from contradictions(flavour, facts.values, passed)


RULE = Rule(
    code="DSF143",
    name="external-arguments",
    severity=Severity.ERROR,
    summary="arguments passed on are legal for the program and say what the recipe says",
    why="The program would end in its parser on every rank, or train something else than the plan.",
    check=_check,
    firm=True,
)
