"""A model's shape and its exact parameter counts by component."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dsforge.catalog.tables import find_model
from dsforge.recipe.sections import ShapeSection

VOCAB_DIVISOR = 128
"""Megatron pads the vocabulary to this times TP (megatron/training/tokenizer: vocab_size_with_padding)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything that fixes the parameters of a GPT- or Llama-shaped decoder."""

    name: str
    arch: Literal["gpt", "llama"]
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

    @property
    def biased(self) -> bool:
        """Linear layers carry biases (gpt), or not (llama)."""
        return self.arch == "gpt"

    def layer_parameters(self) -> dict[str, int]:
        """Return parameters of one layer: attention (fused QKV and output), mlp, norms."""
        qkv_width = (self.heads + 2 * self.kv_heads) * self.head_dim
        attention_width = self.heads * self.head_dim
        gates = 2 if self.arch == "llama" else 1
        attention = self.hidden * qkv_width + attention_width * self.hidden
        mlp = gates * self.hidden * self.ffn_hidden + self.ffn_hidden * self.hidden
        norms = 2 * self.norm_parameters()
        if self.biased:
            attention += qkv_width + self.hidden
            mlp += gates * self.ffn_hidden + self.hidden
        return {"attention": attention, "mlp": mlp, "norm": norms}

    def norm_parameters(self) -> int:
        """Return parameters of one norm: scale, and for LayerNorm a shift."""
        return self.hidden * (2 if self.arch == "gpt" else 1)

    def embedding_parameters(self, vocab: int) -> dict[str, int]:
        """Return parameters of the input side for a (padded) vocabulary."""
        counts = {"word_embedding": vocab * self.hidden}
        if self.arch == "gpt":
            counts["position_embedding"] = self.max_positions * self.hidden
        return counts

    def components(self) -> dict[str, int]:
        """Return parameters by component, unpadded, tied weights once; the sum is the model."""
        per_layer = self.layer_parameters()
        counts = self.embedding_parameters(self.vocab)
        for name, count in per_layer.items():
            counts[name] = count * self.layers
        counts["final_norm"] = self.norm_parameters()
        counts["head"] = 0 if self.tied else self.vocab * self.hidden
        return counts

    def parameters(self) -> int:
        """Return the exact parameter count, unpadded, tied weights once."""
        return sum(self.components().values())


def padded_vocab(vocab: int, tp: int) -> int:
    """Return the vocabulary rounded up to a multiple of 128 x TP."""
    step = VOCAB_DIVISOR * tp
    return -(-vocab // step) * step


def resolve_shape(model: ShapeSection | str, seq_len: int) -> Shape:
    """Return the shape of a preset, a size or a written-out section; DsforgeError DSF030 if unknown."""
    if isinstance(model, str):
        preset = find_model(model)
        return _complete(
            ShapeSection.model_validate(preset.shape), preset.name, preset.nominal_parameters, seq_len
        )
    return _complete(model, f"{model.arch}-{model.layers}x{model.hidden}", None, seq_len)


def _complete(section: ShapeSection, name: str, nominal: int | None, seq_len: int) -> Shape:
    llama = section.arch == "llama"
    # Llama's feed-forward width: 2/3 of 4 x hidden, up to a multiple of 256 (Touvron et al. 2023, sec. 2.2).
    default_ffn = -(-(8 * section.hidden // 3) // 256) * 256 if llama else 4 * section.hidden
    return Shape(
        name=name,
        arch=section.arch,
        layers=section.layers,
        hidden=section.hidden,
        heads=section.heads,
        kv_heads=section.kv_heads or section.heads,
        head_dim=section.head_dim or max(1, section.hidden // section.heads),
        ffn_hidden=section.ffn_hidden or default_ffn,
        vocab=section.vocab,
        max_positions=section.max_positions or seq_len,
        tied=section.tied if section.tied is not None else not llama,
        norm_eps=section.norm_eps or 1e-5,
        rope_theta=section.rope_theta or 10_000.0,
        nominal_parameters=nominal,
    )
