"""The sections of a model's shape and of its experts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from dsforge.base.limits import MOST_EXPERTS, MOST_HEADS, MOST_HIDDEN, MOST_LAYERS, MOST_VOCAB
from dsforge.recipe.hinted import HintedError
from dsforge.recipe.quantities import Count, Epsilon, Flag, Positive, PositiveCount
from dsforge.recipe.section import Section

_KNOWN_BY = {
    "mistral": "`arch: llama`, with `window` where the model's config.json has a sliding_window",
    "gpt2": "`arch: gpt`",
    "gpt3": "`arch: gpt`",
    "gpt_neox": "`arch: gpt-neox`",
    "llama2": "`arch: llama`",
    "llama3": "`arch: llama`",
}
"""Names that models of a family go by elsewhere, and how a recipe says them."""


class ExpertsSection(Section):
    """The experts of a model's layers, in the place of one MLP each."""

    count: Annotated[PositiveCount, Field(le=MOST_EXPERTS)] = Field(description="Experts of a layer.")
    active: PositiveCount = Field(description="Experts that a token is sent to.")
    ffn_hidden: PositiveCount = Field(description="Width of an expert.")
    normalised: Flag = Field(
        default=True,
        description="The chosen experts' shares of a token add up to 1; false: they are those among all.",
    )
    dense_layers: tuple[Count, ...] = Field(
        default=(), description="Layers, counted from 0, that have an ordinary MLP instead."
    )


class ShapeSection(Section):
    """A model's shape written out instead of named."""

    arch: Literal["gpt", "llama", "qwen2", "qwen3", "mixtral", "gpt-neox", "gemma"] = Field(
        description="gpt: learned positions, LayerNorm, GELU, biases; "
        "llama: RoPE, RMSNorm, SwiGLU, no biases; "
        "qwen2: llama with biases of queries, keys and values; qwen3: llama with norms on queries and keys; "
        "mixtral: as llama; "
        "gpt-neox: gpt with RoPE on a quarter of each head, attention and MLP side by side; "
        "gemma: llama with GeGLU, scaled embeddings and norm scales counted from 1."
    )
    layers: Annotated[PositiveCount, Field(le=MOST_LAYERS)] = Field(description="Transformer layers.")
    hidden: Annotated[PositiveCount, Field(le=MOST_HIDDEN)] = Field(
        description="Width of the residual stream."
    )
    heads: Annotated[PositiveCount, Field(le=MOST_HEADS)] = Field(description="Attention (query) heads.")
    kv_heads: PositiveCount | None = Field(
        default=None, description="Key-value heads (grouped-query attention); default: heads."
    )
    head_dim: PositiveCount | None = Field(default=None, description="Head width; default: hidden / heads.")
    ffn_hidden: PositiveCount | None = Field(
        default=None,
        description="Width of the feed-forward layer; default: 4 x hidden for gpt and gpt-neox, "
        "8/3 x hidden rounded up to a multiple of 256 for the others, which are gated; "
        "experts have a width of their own.",
    )
    vocab: Annotated[PositiveCount, Field(le=MOST_VOCAB)] = Field(
        description="Vocabulary size, before padding."
    )
    tied: Flag | None = Field(
        default=None,
        description="Head shares the embedding's weight; default: true for gpt and gemma, else false.",
    )
    max_positions: PositiveCount | None = Field(
        default=None, description="Learned positions (gpt); default: batch.seq_len."
    )
    rope_theta: Positive | None = Field(default=None, description="RoPE base (all but gpt); default: 10000.")
    norm_eps: Epsilon | None = Field(
        default=None, description="Default: 1e-6 for qwen2, qwen3 and gemma, else 1e-5."
    )
    experts: ExpertsSection | None = Field(
        default=None, description="Experts in the place of the MLPs; default: none."
    )
    activation: Literal["gelu", "gelu-erf", "relu", "swiglu", "geglu"] | None = Field(
        default=None,
        description="gelu is the tanh approximation, gelu-erf the exact one; swiglu and geglu are gated. "
        "Default: the arch's.",
    )
    parallel_residual: Flag | None = Field(
        default=None,
        description="Attention and MLP read the same input and are added together; "
        "default: true for gpt-neox, else false.",
    )
    rotary_fraction: Annotated[Positive, Field(le=1)] | None = Field(
        default=None, description="Share of each head that RoPE turns; default: 0.25 for gpt-neox, else 1."
    )
    window: PositiveCount | None = Field(
        default=None, description="Tokens that a layer looks back, each one itself among them; default: all."
    )

    @field_validator("arch", mode="before")
    @classmethod
    def _known_elsewhere(cls, value: Any) -> Any:
        if isinstance(value, str) and (said := _KNOWN_BY.get(value.lower())):
            raise HintedError(f"a recipe has another name for `{value}`", said)
        return value
