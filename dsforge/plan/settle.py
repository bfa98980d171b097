"""A recipe's open layout becomes a fixed one."""

from __future__ import annotations

from dsforge.plan.types import Decision
from dsforge.recipe.model import Recipe
from dsforge.recipe.settled import SIMPLEST, SettledRecipe, left_open, settled


def settle(recipe: Recipe) -> tuple[SettledRecipe, list[Decision]]:
    """Return a recipe with every degree chosen, and why."""
    chosen = {key: SIMPLEST[key] for key in left_open(recipe)}
    decisions = [Decision(key=key, value=value, why="the simplest") for key, value in chosen.items()]
    return settled(recipe, chosen), decisions
