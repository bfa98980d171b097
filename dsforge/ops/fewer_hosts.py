"""A recipe without some of its hosts: planned anew, its batch and every degree that it names as they are."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from dsforge.plan.types import Plan
from dsforge.recipe.load import LoadedRecipe, apply_override, check


def changes_without(plan: Plan, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the changes of a recipe that leave out some of its hosts; its spares are the first to go."""
    left = plan.layout.nodes + plan.spares - len(hosts)
    nodes = min(plan.layout.nodes, left)
    spares = (f"cluster.spares={left - nodes}",) if plan.spares else ()
    choice = "@".join(filter(None, (plan.exclude, *hosts)))
    # Where the launcher is left open, one node alone would be taken for this machine.
    is_open = any(decision.key == "launch.launcher" for decision in plan.decisions)
    launcher = (f"launch.launcher={plan.launch.launcher}",) if nodes == 1 and is_open else ()
    return (f"cluster.nodes={nodes}", *spares, f"cluster.exclude={choice}", *launcher)


def changed(loaded: LoadedRecipe, changes: Sequence[str]) -> LoadedRecipe:
    """Return a recipe with further changes; DsforgeError where they make none."""
    document = copy.deepcopy(loaded.document)
    for change in changes:
        apply_override(document, change)
    return replace(loaded, document=document, recipe=check(document), changes=(*loaded.changes, *changes))
