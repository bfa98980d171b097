"""The yardstick's close calls: which tokens of a router rounding may send to another expert."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch

from dsforge.plan.types import Model
from dsforge.records.close_calls import CloseCall
from dsforge.train.reference_model import Routed, Switched

ROUNDINGS = 256
"""Gap up to which a call is close. Between two fp32 orders of summing, gaps move by up to 13 in 20 steps."""


def close_calls(
    model: Model, routed: Iterable[Routed], samples: Sequence[int], step: int, *, validation: bool = False
) -> Iterator[CloseCall]:
    """Yield the close calls of samples whose ids are given, a row each; none where all experts work."""
    if model.experts is None or model.experts.active == model.experts.count:
        return
    active = model.experts.active
    for went in routed:
        scores = went.scores.detach()
        best = scores.topk(active + 1).values
        unit = (torch.finfo(scores.dtype).eps * scores.abs().max()).clamp_min(torch.finfo(scores.dtype).tiny)
        gaps = (best[..., active - 1] - best[..., active]) / unit
        for row, position in (gaps < ROUNDINGS).nonzero().tolist():
            gap = gaps[row, position].item()
            yield CloseCall(step, validation, went.layer, samples[row], position, gap)


def switched(
    calls: Iterable[CloseCall], samples: Sequence[int], step: int, *, validation: bool = False
) -> Switched:
    """Return which tokens of these samples go the other way."""
    found: dict[int, list[tuple[int, int]]] = {}
    for call in calls:
        if call.at == (step, validation) and call.sample in samples:
            found.setdefault(call.layer, []).append((samples.index(call.sample), call.position))
    return found
