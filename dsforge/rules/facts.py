"""What rules look at: the recipe and everything derived from it so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dsforge.catalog.engines.capabilities import Capabilities
from dsforge.catalog.tables import Hardware
from dsforge.layout.shape import Shape
from dsforge.recipe.settled import SettledRecipe


@dataclass(frozen=True, slots=True)
class Facts:
    """A recipe with its model, hardware and resolved degrees.

    `dp`, `zero` and `accumulation_steps` are None where another rule's fault keeps them from being known.
    """

    recipe: SettledRecipe
    shape: Shape
    hardware: Hardware
    capabilities: Capabilities
    values: Mapping[str, Any]
    """What the recipe says by name, for programs that are data (`external/values.py`)."""
    dp: int | None
    zero: int | None
    micro: int | None
    accumulation_steps: int | None
    steps: int | None
    total_bytes: int | None
    """Model states and fp32 sums of gradients of the fullest rank, in bytes."""
    fp32_sum_bytes: int | None
    """The sums among them."""
    most_layers: int | None
    """Layers of the stage that has most of them."""
    undecided: frozenset[str] = frozenset()
    """Keys that a search left open, as it found nothing: their values here stand in."""

    @property
    def devices(self) -> int:
        """Ranks the cluster has room for."""
        return self.recipe.cluster.nodes * self.recipe.cluster.gpus_per_node

    @property
    def fast_domain(self) -> int:
        """GPUs that fast links join: those of a node, or of several nodes in a rack that is wired so."""
        return max(self.recipe.cluster.gpus_per_node, self.hardware.domain)

    @property
    def model_parallel(self) -> int:
        """Ranks that hold one replica: TP x PP x CP."""
        parallel = self.recipe.parallel
        return parallel.tp * parallel.pp * parallel.cp
