"""The rules by code, found by looking into `checks/`, and their application."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from dsforge.base.errors import Finding, Fix, Severity
from dsforge.rules import checks
from dsforge.rules.facts import Facts


@dataclass(frozen=True, slots=True)
class Found:
    """What a check saw: message with the numbers, the key it is about, and how to mend it."""

    message: str
    key: str
    hint: str
    fix: Fix | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `why` says what happens to a run that breaks it."""

    code: str
    name: str
    severity: Severity
    summary: str
    why: str
    check: Callable[[Facts], Iterable[Found]]
    plannable: bool = False
    """The numbers of a plan stand even where this rule is broken, so `plan` can show them."""
    harmless_plan: bool = False
    """A plan may be what the user is after, though nothing here can run it: `plan` warns."""
    firm: bool = False
    """No experiment may set it aside: what would run is not what the recipe names."""


@cache
def rules() -> dict[str, Rule]:
    """Return every rule by code; two files with one code are a bug."""
    found: dict[str, Rule] = {}
    for module in sorted(pkgutil.iter_modules(checks.__path__), key=lambda info: info.name):
        rule: Rule = importlib.import_module(f"{checks.__name__}.{module.name}").RULE
        assert rule.code not in found, f"{rule.code} stands twice"
        found[rule.code] = rule
    return dict(sorted(found.items()))


def apply(facts: Facts, allow: frozenset[str] = frozenset()) -> Iterator[Finding]:
    """Yield findings of all rules; an allowed code weighs as a warning, unless its rule is firm."""
    for rule in rules().values():
        severity = Severity.WARNING if rule.code in allow and not rule.firm else rule.severity
        for found in rule.check(facts):
            yield Finding(rule.code, severity, found.message, found.key, None, found.hint, found.fix)
