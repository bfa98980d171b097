"""What each optimizer reads of a recipe, and what it keeps of a parameter besides the weight."""

from __future__ import annotations

READS = {
    "adamw": ("betas", "eps"),
    "sgd": ("momentum",),
    "lion": ("betas",),
}
"""Keys of `optimizer` that not every type reads, by type."""


ADAM_MOMENTS = 2


def moments(kind: str, momentum: float) -> int:
    """Return how many fp32 values an optimizer keeps of a parameter.

    AdamW (Loshchilov and Hutter 2019) keeps two, Lion (Chen et al. 2023) one, SGD one with a momentum.
    """
    if kind == "sgd":
        return int(momentum > 0)
    return {"adamw": ADAM_MOMENTS, "lion": 1}[kind]
