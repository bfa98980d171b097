"""DSF144: what a revision of an external program is known to do wrong is not asked of it."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.external.changes import changes
from dsforge.external.expressions import evaluate, names
from dsforge.external.values import RESOLVED
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    section = facts.recipe.external
    if section is None or facts.recipe.trainer != "external":
        return
    flavour = flavour_of(section.flavour)
    if flavour.takes != "anything":
        for fault in changes(flavour, facts.values, section.arguments):
            yield Found(f"{section.flavour}: {fault.message}", f"external.arguments.{fault.at}", fault.hint)
    for failure in flavour.failures:
        known = all(facts.values[name] is not None for name in names(failure.when) if name in RESOLVED)
        if known and evaluate(failure.when, facts.values):
            yield Found(f"{section.flavour}: {failure.why}", failure.key, failure.hint)


RULE = Rule(
    code="DSF144",
    name="external-failures",
    severity=Severity.ERROR,
    summary="nothing is asked of an external program that its revision does wrong",
    why="Its parser takes it; the run fails later, or trains wrongly without a word.",
    check=_check,
    plannable=True,
)
