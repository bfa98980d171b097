"""Which layers each pipeline stage holds, and the parameters of each stage."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from dsforge.layout.embedding import embedding_parameters, head_parameters
from dsforge.layout.shape import Shape


@dataclass(frozen=True, slots=True)
class StageLayers:
    """Layers of one stage: `count` from `first`; the embedding is on the first stage, the head on the last.

    With virtual stages they are `parts` equal blocks, whose first layers stand `apart`.
    """

    stage: int
    first: int
    count: int
    has_embedding: bool
    has_head: bool
    parts: int = 1
    apart: int = 0

    @property
    def starts(self) -> tuple[int, ...]:
        """First layers of its blocks."""
        return tuple(self.first + part * self.apart for part in range(self.parts))


def split_uniform(layers: int, pp: int) -> list[int]:
    """Return layers a stage, as equal as can be; the first stages get what is left over."""
    each, rest = divmod(layers, pp)
    return [each + (stage < rest) for stage in range(pp)]


def split_by_weight(layer: int, first_extra: int, last_extra: int, layers: int, pp: int) -> list[int]:
    """Return layers a stage that make the heaviest stage lightest, every stage holding one at least.

    Weights are of one layer, of the embedding on stage 0, of the head on the last. As the layers weigh the
    same, giving each in turn to the lightest stage is optimal. Ties go to the later stage, for the first one
    also keeps most activations under 1F1B.
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


def split_contiguous(layers: list[int], first_extra: int, last_extra: int, pp: int) -> list[int]:
    """Return layers a stage that make the heaviest stage lightest, for layers of different weights.

    The lightest possible heaviest stage is found by bisection; stages are then filled from the last one,
    for the first also keeps most activations under 1F1B. Every stage holds one layer at least.
    """
    low, high = 0, sum(layers) + first_extra + last_extra
    while low < high:
        limit = (low + high) // 2
        if _filled(layers, first_extra, last_extra, pp, limit):
            high = limit
        else:
            low = limit + 1
    counts = _filled(layers, first_extra, last_extra, pp, low)
    assert counts is not None
    return counts


def _filled(layers: list[int], first_extra: int, last_extra: int, pp: int, limit: int) -> list[int] | None:
    """Return layers a stage, filling from the last with at most `limit` each; None when they do not fit."""
    counts = []
    end = len(layers)
    for stage in range(pp - 1, -1, -1):
        held = (first_extra if stage == 0 else 0) + (last_extra if stage == pp - 1 else 0)
        start = end
        # One layer at least stays for each earlier stage.
        while start > stage and held + layers[start - 1] <= limit:
            start -= 1
            held += layers[start]
        if start == end:
            return None
        counts.append(end - start)
        end = start
    return counts[::-1] if end == 0 else None


def assign(shape: Shape, pp: int, method: str, vocab: int, vp: int = 1) -> list[StageLayers]:
    """Return the stages for `uniform`, `parameters` or `measured`; needs layers >= PP x VP.

    With virtual stages all blocks are of one size, dealt out in turn (Narayanan et al. 2021, section 2.2).
    """
    if vp > 1:
        block = shape.layers // (pp * vp)
        return [
            StageLayers(stage, stage * block, vp * block, stage == 0, stage == pp - 1, vp, pp * block)
            for stage in range(pp)
        ]
    if method == "uniform" or pp == 1:
        counts = split_uniform(shape.layers, pp)
    else:
        embedding, weights, head = _weights(shape, method, vocab)
        if len(set(weights)) == 1:
            counts = split_by_weight(weights[0], embedding, head, shape.layers, pp)
        else:
            counts = split_contiguous(weights, embedding, head, pp)
    stages = []
    first = 0
    for stage, count in enumerate(counts):
        stages.append(StageLayers(stage, first, count, stage == 0, stage == pp - 1))
        first += count
    return stages


def _weights(shape: Shape, method: str, vocab: int) -> tuple[int, list[int], int]:
    """Return what the embedding, each layer and the head weigh: parameters, or measured nanoseconds.

    Where nothing is measured a rule refuses `measured` (DSF795), and parameters stand in.
    """
    times = shape.times if method == "measured" else None
    if times is not None:
        return times.embedding.weight, [times.layer.weight] * shape.layers, times.head.weight
    embedding = sum(embedding_parameters(shape, vocab).values())
    head = sum(head_parameters(shape, vocab, shared=False).values())
    return embedding, [sum(shape.layer_parameters(layer).values()) for layer in range(shape.layers)], head


def stage_components(
    shape: Shape, stage: StageLayers, vocab: int, tp: int = 1, ep: int = 1
) -> dict[str, int]:
    """Return parameters of one stage by component, as one of its ranks holds them; TP, EP 1: the whole stage.

    A tied head on another stage than the embedding is a copy that both hold.
    """
    counts = embedding_parameters(shape, vocab, tp) if stage.has_embedding else {}
    for start in stage.starts:
        for name, count in shape.layers_parameters(start, stage.count // stage.parts, tp, ep).items():
            counts[name] = counts.get(name, 0) + count
    if stage.has_head:
        counts |= head_parameters(shape, vocab, tp, shared=shape.tied and stage.has_embedding)
    return {name: count for name, count in counts.items() if count}


@dataclass(frozen=True, slots=True)
class Held:
    """Parameters of one rank: those of which every replica has a copy, and experts, dealt out by EP."""

    shared: int
    experts: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.shared + self.experts


def held(shape: Shape, stage: StageLayers, vocab: int, tp: int, ep: int = 1) -> Held:
    """Return what one rank of a stage holds, of a vocabulary padded for `tp`.

    Where experts are dealt out, each is whole on its rank and TP does not split it.
    """
    counts = stage_components(shape, stage, vocab, tp, ep)
    experts = counts.pop("experts", 0) if ep > 1 else 0
    return Held(sum(counts.values()), experts)
