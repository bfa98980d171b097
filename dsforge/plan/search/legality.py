"""Whether the rules of the trainer allow a candidate."""

from __future__ import annotations

from dsforge.base.errors import Finding, Severity
from dsforge.catalog.engines.capabilities import capabilities
from dsforge.catalog.tables import Hardware
from dsforge.layout.batch import solve
from dsforge.layout.shape import Shape
from dsforge.plan.auto import Resolved
from dsforge.plan.program import engine_of, values_of
from dsforge.plan.search.candidate import KEYS, Candidate
from dsforge.recipe.model import Recipe
from dsforge.recipe.settled import settled
from dsforge.rules.facts import Facts
from dsforge.rules.registry import apply

CHANGEABLE = frozenset({*KEYS, "batch.global", "train.recompute_every", "parallel.partition"})
"""Keys about which a finding may be the candidate's fault; of others the recipe has to answer for itself."""


class Legality:
    """Applies every rule to candidates of one recipe. `known` holds what no candidate changes."""

    def __init__(self, recipe: Recipe, shape: Shape, hardware: Hardware, known: Resolved, nodes: int) -> None:
        if nodes != recipe.cluster.nodes:
            cluster = recipe.cluster.model_copy(update={"nodes": nodes})
            recipe = recipe.model_copy(update={"cluster": cluster})
        self._recipe, self._shape, self._hardware, self._known = recipe, shape, hardware, known
        self._trainer = capabilities(engine_of(recipe))

    def fault(self, one: Candidate) -> Finding | None:
        """Return the first error about what a candidate chooses; None where it is legal."""
        recipe = settled(self._recipe, one.values())
        batch = solve(recipe.batch.global_size, one.micro, one.dp)
        steps = batch.accumulation_steps if batch else None
        resolved = Resolved(
            dp=one.dp,
            zero=one.zero,
            micro=one.micro,
            batch=batch,
            steps=self._known.steps,
            eval_samples=self._known.eval_samples,
        )
        facts = Facts(
            recipe=recipe,
            shape=self._shape,
            hardware=self._hardware,
            capabilities=self._trainer,
            values=values_of(recipe, self._shape, self._hardware, resolved),
            dp=one.dp,
            zero=one.zero,
            micro=one.micro,
            accumulation_steps=steps,
            steps=self._known.steps,
            total_bytes=None,  # memory is weighed by the cost model
            fp32_sum_bytes=None,
            most_layers=-(-self._shape.layers // one.pp),
        )
        errors = (found for found in apply(facts) if found.severity is Severity.ERROR)
        return next((found for found in errors if found.key in CHANGEABLE), None)

    def forbids(self, one: Candidate, key: str) -> bool:
        """Tell whether the first error is about one key."""
        found = self.fault(one)
        return found is not None and found.key == key
