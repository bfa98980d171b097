"""What the memory estimate has to say of a recipe: that its plan does not fit, or may not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dsforge.base.errors import Finding, Severity
from dsforge.plan.memory import MemoryEstimate, memory_estimate
from dsforge.plan.mending import MemoryEdit, edits_that_fit
from dsforge.plan.types import Plan
from dsforge.recipe.load import LoadedRecipe

_BAD = ("tight", "does not fit")


def memory_with_edits(loaded: LoadedRecipe, plan: Plan) -> tuple[MemoryEstimate | str, list[MemoryEdit]]:
    """Return what a plan takes, or why that is not known, and the edits that make it fit where it may not."""
    estimate = memory_estimate(plan)
    poor = not isinstance(estimate, str) and estimate.verdict in _BAD
    return estimate, edits_that_fit(loaded, plan) if poor else []


def memory_findings(
    loaded: LoadedRecipe,
    plan: Plan,
    memory: tuple[MemoryEstimate | str, Sequence[MemoryEdit]] | None = None,
    allow: frozenset[str] = frozenset(),
) -> list[Finding]:
    """Return DSF750 or DSF751, or nothing where it fits or is not known, or the states alone are refused.

    `memory`: what `memory_with_edits` returned already. Codes in `allow` weigh as warnings.
    """
    if any(found["code"] == "DSF160" for found in plan.findings):
        return []
    estimate, edits = memory or memory_with_edits(loaded, plan)
    if isinstance(estimate, str):
        return []
    hint = None
    if edits:
        texts = (f"{edit.text} ({edit.step_seconds:.3g} s a step)" for edit in edits)
        hint = f"it would fit with {', or '.join(texts)}"
    found = estimate.finding(hint)
    if found is None:
        return []
    severity = Severity.WARNING if found.code in allow else found.severity
    return [replace(found, place=loaded.place(found.key), severity=severity)]
