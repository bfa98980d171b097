"""Degrees that a shape allows."""

from __future__ import annotations

from math import gcd

from dsforge.layout.shape import Shape

_MOST = 64
"""Larger TP than any fast-link domain is not worth naming."""


def legal_tp(shape: Shape) -> list[int]:
    """Return the TP degrees, ascending, that divide heads, key-value heads and feed-forward width."""
    common = gcd(shape.heads, shape.kv_heads, *shape.mlp_widths())
    return [degree for degree in range(1, min(common, _MOST) + 1) if common % degree == 0]


def nearest_below(degrees: list[int], wanted: int) -> int:
    """Return the largest degree under the one that was wanted; 1 is always legal."""
    return max(degree for degree in degrees if degree < max(wanted, 2))
