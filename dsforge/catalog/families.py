"""What a model's layers are made of, as data: the traits of a family, experts, latent attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from dsforge.catalog.yaml_tables import table


@dataclass(frozen=True, slots=True)
class Traits:
    """What distinguishes architectures beyond sizes. The defaults are those of a plain pre-norm decoder."""

    norm: str
    activation: str
    position: str
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    layer_norms: int = 2
    """Norms of the full width in one layer."""
    parallel_residual: bool = False
    """Attention and MLP read the same input and are added together."""
    post_norm: bool = False
    final_norm: bool = True
    embedding_norm: bool = False
    qk_norm: bool = False
    """A norm of head width on queries and one on keys."""
    sinks: bool = False
    """One learned logit a head that takes part in the softmax."""
    position_offset: int = 0
    """Rows of the table of learned positions that stand before position 0."""
    rotary_fraction: float = 1.0
    rope_scaling: bool = False
    window: int | None = None
    """Tokens that (some) layers look back; None: all."""
    softcap: bool = False
    unit_offset_norm: bool = False
    scaled_embedding: bool = False
    clipped_swiglu: bool = False

    @property
    def gated(self) -> bool:
        """The MLP has two input matrices, one of which gates the other."""
        return self.activation in ("swiglu", "geglu")


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture-of-experts MLP. `dense_layers` keep an ordinary MLP; width 0 means no shared expert."""

    count: int
    active: int
    ffn_hidden: int
    shared_ffn_hidden: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    normalised: bool = True
    """The chosen experts' shares of a token add up to 1; else they are those among all experts."""
    dense_layers: tuple[int, ...] = ()

    def fit(self, layers: int) -> bool:
        """Tell whether a token can choose as many, and some of so many layers have them."""
        dense = set(self.dense_layers)
        distinct = len(dense) == len(self.dense_layers) < layers
        return self.active <= self.count and distinct and all(layer < layers for layer in dense)


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-AI 2024, V2, section 2.1); `q_rank` None: queries stay whole."""

    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Family:
    """A family's traits, and the defaults its models share."""

    name: str
    traits: Traits
    tied: bool
    norm_eps: float
    source: str


TRAITS: tuple[str, ...] = tuple(field.name for field in fields(Traits))


@cache
def families() -> dict[str, Family]:
    """Return every family by name."""
    return {name: _family(name) for name in table("families")}


def _family(name: str) -> Family:
    row = _inherited(name)
    return Family(
        name=name,
        traits=Traits(**{key: row[key] for key in TRAITS if key in row}),
        tied=row.get("tied", False),
        norm_eps=row.get("norm_eps", 1.0e-5),
        source=row["source"],
    )


def _inherited(name: str) -> Mapping[str, Any]:
    row = table("families")[name]
    return {**_inherited(row["like"]), **row} if "like" in row else row
