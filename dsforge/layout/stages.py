"""Which layers each pipeline stage holds, and the parameters of each stage."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from dsforge.layout.shape import Shape


@dataclass(frozen=True, slots=True)
class StageLayers:
    """Layers [first, first + count) of one stage; the embedding is on the first, the head on the last."""

    stage: int
    first: int
    count: int
    has_embedding: bool
    has_head: bool


def split_uniform(layers: int, pp: int) -> list[int]:
    """Return layers a stage, as equal as can be; the first stages get what is left over."""
    each, rest = divmod(layers, pp)
    return [each + (stage < rest) for stage in range(pp)]


def split_by_weight(layer: int, first_extra: int, last_extra: int, layers: int, pp: int) -> list[int]:
    """Return layers a stage that make the heaviest stage lightest, every stage holding one at least.

    Weights are parameters: of one layer, of the embedding on stage 0, of the head on the last. As the
    layers weigh the same, giving each in turn to the lightest stage is optimal. Ties go to the later
    stage, for the first one also keeps most activations under 1F1B.
    """
    extras = [0] * pp
    extras[0] += first_extra
    extras[-1] += last_extra
    counts = [1] * pp
    heap = [(extras[stage] + layer, -stage) for stage in range(pp)]
    heapq.heapify(heap)
    for _ in range(layers - pp):
        weight, later = heap[0]
        counts[-later] += 1
        heapq.heapreplace(heap, (weight + layer, later))
    return counts


def assign(shape: Shape, pp: int, method: str, vocab: int) -> list[StageLayers]:
    """Return the stages for `uniform` or `parameters`; needs layers >= pp."""
    if method == "uniform" or pp == 1:
        counts = split_uniform(shape.layers, pp)
    else:
        embedding = sum(shape.embedding_parameters(vocab).values())
        head = vocab * shape.hidden + shape.norm_parameters()
        layer = sum(shape.layer_parameters().values())
        counts = split_by_weight(layer, embedding, head, shape.layers, pp)
    stages = []
    first = 0
    for stage, count in enumerate(counts):
        stages.append(StageLayers(stage, first, count, stage == 0, stage == pp - 1))
        first += count
    return stages


def stage_components(shape: Shape, stage: StageLayers, vocab: int) -> dict[str, int]:
    """Return parameters that one stage holds, over all its TP ranks.

    A tied head on another stage than the embedding is a copy that both hold.
    """
    counts = dict.fromkeys(("word_embedding", "position_embedding"), 0)
    if stage.has_embedding:
        counts |= shape.embedding_parameters(vocab)
    for name, count in shape.layer_parameters().items():
        counts[name] = count * stage.count
    counts["final_norm"] = shape.norm_parameters() if stage.has_head else 0
    shared_here = shape.tied and stage.has_embedding
    counts["head"] = vocab * shape.hidden if stage.has_head and not shared_here else 0
    return {name: count for name, count in counts.items() if count}


REPLICATED_OVER_TP = ("position_embedding", "norm", "final_norm")
"""Components that every TP rank holds whole."""


def rank_parameters(shape: Shape, components: dict[str, int], layers: int, tp: int) -> int:
    """Return parameters that one rank of a stage holds: split components / TP, the rest whole.

    Biases of row-parallel layers (attention output, second mlp layer) are added after the reduction
    and therefore whole on every rank.
    """
    total = 0
    for name, count in components.items():
        if name in REPLICATED_OVER_TP:
            total += count
        elif name in ("attention", "mlp") and shape.biased:
            whole = shape.hidden * layers
            total += (count - whole) // tp + whole
        else:
            total += count // tp
    return total
