"""A model's shape and its exact parameter counts by component."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dsforge.catalog.families import TRAITS, Experts, LatentAttention, Traits, families
from dsforge.catalog.hf.reader import model_row
from dsforge.catalog.tables import find_model
from dsforge.layout.attention import attention_parameters
from dsforge.layout.embedding import embedding_parameters, head_parameters, norm_parameters
from dsforge.layout.mlp import idle_parameters, layer_mlp
from dsforge.recipe.sections import ShapeSection
from dsforge.records.layer_times import LayerTimes

VOCAB_DIVISOR = 128
"""Megatron pads the vocabulary to this times TP (megatron/training/tokenizer: vocab_size_with_padding)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything that fixes the parameters of a decoder. `arch` names its family."""

    name: str
    arch: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_hidden: int
    vocab: int
    max_positions: int
    tied: bool
    norm_eps: float
    rope_theta: float
    nominal_parameters: int | None
    embedding_width: int
    """Width of the word embeddings; where it is not `hidden`, projections stand on both ends."""
    traits: Traits
    experts: Experts | None = None
    latent: LatentAttention | None = None
    times: LayerTimes | None = None
    """What its pieces took where they were measured: stages may be dealt out by it."""

    def mlp_widths(self) -> tuple[int, ...]:
        """Return the different widths of the MLPs that TP splits, the widest first."""
        experts = self.experts
        if experts is None:
            return (self.ffn_hidden,)
        widths = {experts.ffn_hidden, experts.shared_ffn_hidden}
        if experts.dense_layers:
            widths.add(self.ffn_hidden)
        return tuple(sorted(widths - {0}, reverse=True))

    def layer_parameters(self, layer: int = 0, tp: int = 1, ep: int = 1) -> dict[str, int]:
        """Return parameters of one layer by component, as one of `tp` ranks holds them."""
        return {
            "attention": attention_parameters(self, tp),
            **layer_mlp(self, layer, tp, ep),
            "norm": self.traits.layer_norms * norm_parameters(self),
        }

    def layers_parameters(self, first: int, count: int, tp: int = 1, ep: int = 1) -> dict[str, int]:
        """Return parameters of layers [first, first + count) by component, on one of `tp` ranks."""
        dense = set(self.experts.dense_layers) if self.experts else set()
        kinds: dict[bool, list[int]] = {}
        for layer in range(first, first + count):
            kinds.setdefault(layer in dense, []).append(layer)
        counts: dict[str, int] = {}
        for alike in kinds.values():
            for name, each in self.layer_parameters(alike[0], tp, ep).items():
                counts[name] = counts.get(name, 0) + each * len(alike)
        return counts

    def components(self) -> dict[str, int]:
        """Return parameters by component, unpadded, tied weights once; the sum is the model."""
        return {
            **embedding_parameters(self, self.vocab),
            **self.layers_parameters(0, self.layers),
            **head_parameters(self, self.vocab, shared=self.tied),
        }

    def parameters(self) -> int:
        """Return the exact parameter count, unpadded, tied weights once."""
        return sum(self.components().values())

    def active_parameters(self) -> int:
        """Return the parameters that one token passes through: all but the experts not chosen for it."""
        return self.parameters() - idle_parameters(self)


def padded_vocab(vocab: int, tp: int, divisor: int = VOCAB_DIVISOR) -> int:
    """Return the vocabulary rounded up to a multiple of divisor x TP."""
    step = divisor * tp
    return -(-vocab // step) * step


def resolve_shape(model: ShapeSection | str, seq_len: int, config: Mapping[str, Any] | None = None) -> Shape:
    """Return the shape of a preset, a size, a written-out section, or of a Hugging Face `config`.

    DsforgeError: DSF030 unknown name; DSF033 unknown architecture, DSF034 unknown value of a config.
    """
    if config is not None:
        row = model_row(config, str(model))
        return shape_of(row, f"{row['arch']}-{row['layers']}x{row['hidden']}", None, seq_len)
    if isinstance(model, str):
        preset = find_model(model)
        return shape_of(preset.shape, preset.name, preset.nominal_parameters, seq_len)
    row = model.model_dump(exclude_none=True)
    return shape_of(row, f"{model.arch}-{model.layers}x{model.hidden}", None, seq_len)


def shape_of(row: Mapping[str, Any], name: str, nominal: int | None, seq_len: int) -> Shape:
    """Return the shape that a row of the catalogue describes; unset fields are the family's."""
    family = families()[row["arch"]]
    hidden, heads = row["hidden"], row["heads"]
    # Llama's feed-forward width: 2/3 of 4 x hidden, up to a multiple of 256 (Touvron et al. 2023, sec. 2.2).
    default_ffn = -(-(8 * hidden // 3) // 256) * 256 if family.traits.gated else 4 * hidden
    experts = _experts(row.get("experts"))
    if experts is not None and not experts.dense_layers:
        default_ffn = experts.ffn_hidden
    return Shape(
        name=name,
        arch=family.name,
        layers=row["layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=row.get("kv_heads", heads),
        head_dim=row.get("head_dim", max(1, hidden // heads)),
        ffn_hidden=row.get("ffn_hidden", default_ffn),
        vocab=row["vocab"],
        max_positions=row.get("max_positions", seq_len),
        tied=row.get("tied", family.tied),
        norm_eps=row.get("norm_eps", family.norm_eps),
        rope_theta=row.get("rope_theta", 10_000.0),
        nominal_parameters=nominal,
        embedding_width=row.get("embedding_width", hidden),
        traits=replace(family.traits, **{key: row[key] for key in TRAITS if key in row}),
        experts=experts,
        latent=LatentAttention(**row["latent"]) if "latent" in row else None,
    )


def _experts(row: Mapping[str, Any] | None) -> Experts | None:
    if row is None:
        return None
    return Experts(**{**row, "dense_layers": tuple(row.get("dense_layers", ()))})
