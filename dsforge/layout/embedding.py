"""Parameters of both ends of a model: embeddings before the layers, norm and head after them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsforge.layout.shape import Shape


def norm_parameters(shape: Shape) -> int:
    """Return parameters of one norm of the full width: scale, and for LayerNorm a shift."""
    return shape.hidden * (2 if shape.traits.norm == "layernorm" else 1)


def embedding_parameters(shape: Shape, vocab: int, tp: int = 1) -> dict[str, int]:
    """Return parameters of the input side for a (padded) vocabulary, which TP ranks share out."""
    counts = {"word_embedding": -(-vocab // tp) * shape.embedding_width}
    if shape.traits.position == "learned":
        counts["position_embedding"] = (shape.max_positions + shape.traits.position_offset) * shape.hidden
    if shape.embedding_width != shape.hidden:
        counts["embedding_projection"] = shape.embedding_width * shape.hidden
    if shape.traits.embedding_norm:
        counts["embedding_norm"] = norm_parameters(shape)
    return counts


def head_parameters(shape: Shape, vocab: int, tp: int = 1, *, shared: bool) -> dict[str, int]:
    """Return parameters of the output side; a `shared` head uses the embedding's own weight."""
    counts = {}
    if shape.traits.final_norm:
        counts["final_norm"] = norm_parameters(shape)
    if shape.embedding_width != shape.hidden:
        counts["head_projection"] = shape.hidden * shape.embedding_width
    counts["head"] = 0 if shared else -(-vocab // tp) * shape.embedding_width
    return counts
