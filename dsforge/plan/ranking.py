"""The best layouts of a recipe side by side, and why one that was asked for is not the best."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from dsforge.base.errors import DsforgeError, Severity
from dsforge.base.units import format_bytes
from dsforge.catalog.tables import Hardware
from dsforge.layout.shape import Shape
from dsforge.plan.estimate import scaled
from dsforge.plan.job import Measured, Unmeasured
from dsforge.plan.measurements import Factor
from dsforge.plan.program import with_defaults
from dsforge.plan.resolve import examine, look_up, make_plan, refusal
from dsforge.plan.search.best import Found, Objective
from dsforge.plan.search.candidate import KEYS
from dsforge.plan.search.legality import CHANGEABLE
from dsforge.plan.search.run import Searched, all_open, known_of, search
from dsforge.plan.search.space import values_of_key
from dsforge.plan.settle import nothing_found
from dsforge.recipe.load import LoadedRecipe
from dsforge.recipe.quantities import MOST_DEVICES
from dsforge.recipe.settled import left_open, with_values

_MEMORY = ("DSF160", "DSF770")
"""What is said of layouts that take more memory than a GPU has."""
_SAME = 5e-4
"""Layouts whose steps differ by less are equally fast: no three digits tell them apart."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a layout: `code` is the rule's or error's that refuses it, None for one that lost."""

    kind: str
    message: str
    code: str | None = None
    found: Found | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        found = self.found
        return {
            "verdict": self.kind,
            "message": self.message,
            "code": self.code,
            "values": found.candidate.values() if found else None,
            "step_seconds": found.step.total if found else None,
            "memory_bytes": found.memory_bytes if found else None,
        }


def opened(loaded: LoadedRecipe, *, everything: bool = False, gpus: int | None = None) -> LoadedRecipe:
    """Return a recipe on another number of GPUs, or with all open that the search can choose.

    DsforgeError DSF779 where these are no whole nodes.
    """
    recipe, cluster = loaded.recipe, loaded.recipe.cluster
    if gpus is not None:
        per_node = min(gpus, cluster.gpus_per_node)
        nodes, rest = divmod(gpus, per_node)
        if rest:
            raise DsforgeError(
                "DSF779",
                f"{gpus} GPUs are no whole nodes of {cluster.gpus_per_node}",
                loaded.place("cluster.gpus_per_node"),
                f"a multiple of {cluster.gpus_per_node}",
            )
        if nodes > MOST_DEVICES:
            raise DsforgeError(
                "DSF779",
                f"{gpus} GPUs are {nodes} nodes of {per_node}, and a recipe has {MOST_DEVICES} at most",
                loaded.place("cluster.gpus_per_node"),
                f"{MOST_DEVICES * per_node} GPUs or fewer",
            )
        recipe = with_values(recipe, {"cluster.nodes": nodes, "cluster.gpus_per_node": per_node})
        if recipe.parallel.dp != "auto":
            recipe = with_values(recipe, {"parallel.dp": "auto"})
    return replace(loaded, recipe=all_open(recipe) if everything else recipe)


def ranking(loaded: LoadedRecipe, *, top: int, objective: Objective) -> Searched:
    """Return the best layouts of what a recipe leaves open.

    DsforgeError DSF779 where there is nothing to choose, or nothing to choose by.
    """
    recipe, _ = with_defaults(loaded.recipe)
    if not left_open(recipe):
        raise DsforgeError(
            "DSF779",
            "the recipe fixes the layout: no degree, recomputation or offload in it is `auto`",
            loaded.place("parallel"),
            "`--search` leaves all open, `parallel.tp=auto` one key",
        )
    shape, hardware, known = _known(loaded)
    if isinstance(known, str):
        raise DsforgeError(
            "DSF779",
            f"there is nothing to choose layouts by: {known}",
            loaded.place(known.key),
            known.hint,
        )
    return search(recipe, shape, hardware, known, top=top, objective=objective)


def _known(loaded: LoadedRecipe) -> tuple[Shape, Hardware, Measured | Unmeasured]:
    shape, hardware, problems = look_up(loaded)
    if shape is None or hardware is None:
        raise refusal(problems)
    return shape, hardware, known_of(loaded.recipe, hardware)


def scaled_by(searched: Searched, factor: Factor | None) -> Searched:
    """Return the layouts with their times scaled: one factor for all, so that their order stays."""
    found = (replace(one, step=scaled(one.step, factor)) for one in searched.found)
    return replace(searched, found=tuple(found))


class Judge:
    """Says what became of layouts that a recipe's plan does not have; where costs are not known, by rules."""

    def __init__(self, loaded: LoadedRecipe, objective: Objective = "time") -> None:
        self._loaded, self._objective = loaded, objective
        self._shape, self._hardware, self._known = _known(loaded)
        self.chosen = self._best(self._planned())

    def verdict(self, wanted: dict[str, Any]) -> Verdict:
        """Return what became of a layout, by the recipe's keys; the rest is chosen as in the recipe.

        Of DP nothing is kept: it is what the other degrees leave.
        """
        free = {"parallel.dp": "auto"} if "parallel.dp" not in wanted else {}
        other = replace(self._loaded, recipe=with_values(self._loaded.recipe, {**free, **wanted}))
        found = self._best(other)
        if found is None:
            return self._without_costs(other)
        if self.chosen is None:
            return Verdict("better", f"{_told(found)}; the recipe's own layout does not fit", found=found)
        return compare(found, self.chosen, self._objective, wanted)

    def _planned(self) -> LoadedRecipe:
        """Return the recipe with what simple rules choose in it."""
        if left_open(self._loaded.recipe):
            return self._loaded
        plan = make_plan(self._loaded, refuse=False)
        own = {"parallel.zero": plan.layout.zero, "batch.micro": plan.batch.micro}
        return replace(self._loaded, recipe=with_values(self._loaded.recipe, own))

    def others(self, key: str) -> list[tuple[Any, Verdict]]:
        """Return every other value of a key that the search chose, and what became of it."""
        if self.chosen is None or key not in KEYS:
            return []
        own = getattr(self.chosen.candidate, KEYS[key])
        recipe, _ = with_defaults(self._loaded.recipe)
        values = values_of_key(recipe, self._shape, key)
        return [(value, self._beside_dp(self.verdict({key: value}))) for value in values if value != own]

    def _beside_dp(self, verdict: Verdict) -> Verdict:
        """Return a verdict that tells of another DP than the recipe fixes."""
        fixed = self._loaded.recipe.parallel.dp
        dp = verdict.found.candidate.dp if verdict.found is not None else fixed
        if fixed in ("auto", dp):
            return verdict
        return replace(verdict, message=f"{verdict.message}; with DP {dp}, where the recipe fixes {fixed}")

    def _without_costs(self, other: LoadedRecipe) -> Verdict:
        """Return what rules say of a layout; of a legal one that it is too large, or cannot be compared."""
        errors = [one for one in examine(other) if one.severity is Severity.ERROR]
        faults = [one for one in errors if one.key in CHANGEABLE or one.code in _MEMORY]
        first = min(faults, key=lambda one: one.key not in KEYS, default=None)
        if first is None:
            if isinstance(self._known, str):
                return Verdict("legal", f"there is nothing to compare it by: {self._known}")
            recipe, _ = with_defaults(other.recipe)
            first = nothing_found(recipe, self._shape, self._hardware, self._known, "parallel")
        return Verdict("does not fit" if first.code in _MEMORY else "illegal", first.message, first.code)

    def _best(self, one: LoadedRecipe) -> Found | None:
        if isinstance(self._known, str):
            return None
        recipe, _ = with_defaults(one.recipe)
        done = search(recipe, self._shape, self._hardware, self._known, objective=self._objective)
        return next(iter(done.found), None)


def compare(found: Found, chosen: Found, objective: Objective, wanted: Collection[str] = ()) -> Verdict:
    """Return what sets a layout apart from the chosen one, with the part of the step that says most.

    `wanted`: keys that were asked for; where others differ, too, both layouts are told with these.
    """
    if found.candidate == chosen.candidate:
        return Verdict("chosen", f"this is the chosen layout: {_told(found)}", found=found)
    mine, theirs = found.key(objective)[0], chosen.key(objective)[0]
    kind = {"time": "slower", "cost": "dearer", "memory": "larger"}[objective] if mine > theirs else "better"
    mine_only, theirs_only = _others_apart(found, chosen, wanted)
    told = f"{_told(found)}{mine_only}, the chosen {_told(chosen)}{theirs_only}: "
    told += difference(found, chosen, objective)
    return Verdict("equal" if _alike(mine, theirs) else kind, told, found=found)


def difference(found: Found, chosen: Found, objective: Objective) -> str:
    """Return in a few words what sets a layout apart from the chosen one."""
    mine, theirs = found.key(objective)[0], chosen.key(objective)[0]
    if _alike(mine, theirs):
        return "as good; ties go to smaller degrees"
    change = f"{mine / theirs - 1:+.1%}"
    if objective == "memory":
        return change

    def more(name: str) -> float:
        gain = getattr(found.step, name) * found.gpus - getattr(chosen.step, name) * chosen.gpus
        return float(gain if mine > theirs else -gain)

    name = max((field.name for field in fields(found.step)), key=more)
    seconds = [f"{getattr(one.step, name):.3g}" for one in (found, chosen)]
    return f"{change}: {name.replace('_', ' ')} {seconds[0]} s, not {seconds[1]}"


def _others_apart(found: Found, chosen: Found, wanted: Collection[str]) -> tuple[str, str]:
    """Return in words what of two layouts differs beyond the keys that were asked for, DP not alone."""
    apart = [
        name
        for key, name in KEYS.items()
        if key not in wanted and getattr(found.candidate, name) != getattr(chosen.candidate, name)
    ]
    if apart in ([], ["dp"]):
        return "", ""
    told = [" ".join(f"{name} {getattr(one.candidate, name)}" for name in apart) for one in (found, chosen)]
    return f" with {told[0]}", f" with {told[1]}"


def _alike(mine: float, theirs: float) -> bool:
    return abs(mine / theirs - 1) < _SAME


def _told(found: Found) -> str:
    return f"{found.step.total:.3g} s a step, {format_bytes(found.memory_bytes)} a GPU"


def as_json(searched: Searched, tokens: int, objective: Objective) -> dict[str, Any]:
    """Return the best layouts JSON-ready, with what a step of so many tokens attains on them."""
    found = searched.found
    return {
        "objective": objective,
        "steps_worked_out": searched.costed,
        "memory_error": searched.memory_error,
        "best": [
            {
                "values": one.candidate.values(),
                "gpus": one.gpus,
                "step": {**asdict(one.step), "total": one.step.total},
                "tokens_per_second_per_gpu": tokens / one.step.total / one.gpus,
                "bubble": one.step.bubble / one.step.total,
                "memory_bytes": one.memory_bytes,
                "why_not": None if one is found[0] else difference(one, found[0], objective),
            }
            for one in found
        ],
    }
