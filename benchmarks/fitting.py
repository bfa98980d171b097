"""Which layers and micro-batch of a shape fit a memory: states and sums by the plan, the rest estimated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dsforge.base.errors import DsforgeError
from dsforge.plan.resolve import make_plan
from dsforge.plan.types import Plan
from dsforge.recipe.load import load_recipe

USABLE = 0.85
"""Of a GPU's memory: the rest is left to the CUDA context, the engine's buckets and fragmentation."""
ACCUMULATION_STEPS = 4


@dataclass(frozen=True)
class Candidate:
    """A size to try."""

    layers: int
    micro: int

    def changes(self) -> list[str]:
        """Return it as changes of a recipe."""
        return [
            f"model.layers={self.layers}",
            f"batch.micro={self.micro}",
            f"batch.global={self.micro * ACCUMULATION_STEPS}",
        ]


def working_bytes(plan: Plan) -> int:
    """Return an estimate of activations in bytes, on the safe side; it decides what is tried, nothing else.

    A token keeps about 10 hidden and 5 feed-forward widths in bf16 in each layer (norms, residuals,
    query, key, value, their rotation, attention, gate, up, product), with recomputation its layers' inputs
    and one layer's share; and logits in bf16 and fp32 with their gradients, 16 bytes an entry.
    """
    model, tokens = plan.model, plan.batch.micro * plan.batch.seq_len
    layer = 2 * (10 * model.hidden + 5 * model.ffn_hidden)
    if plan.train.recompute == "full":
        layers = model.layers * 2 * model.hidden + layer
    else:
        layers = model.layers * layer
    return tokens * (layers + 16 * model.padded_vocab)


def plan_of(recipe: Path, profile: str, changes: list[str]) -> Plan | None:
    """Return the plan, None where a rule refuses it: its states and sums alone exceed the GPU."""
    try:
        return make_plan(load_recipe(recipe, changes, profile))
    except DsforgeError as error:
        if error.code != "DSF160":
            raise
        return None


def first_that_fits(
    recipe: Path, profile: str, changes: list[str], candidates: Iterable[Candidate], memory_bytes: int
) -> tuple[Candidate, Plan] | None:
    """Return the first candidate whose states and estimated activations fit the usable memory."""
    for candidate in candidates:
        plan = plan_of(recipe, profile, [*changes, *candidate.changes()])
        if plan is not None and plan.layout.fullest_rank_bytes + working_bytes(plan) <= USABLE * memory_bytes:
            return candidate, plan
    return None
