"""The largest parameter of a model, for room that a buffer must have."""

from __future__ import annotations


def largest_parameter(hidden: int, *, cut: tuple[int, ...], whole: tuple[int, ...], tp: int) -> int:
    """Return the elements of the largest matrix on one tensor-parallel rank.

    Every matrix of a decoder has `hidden` rows or columns. `cut`: widths of those that TP cuts: vocabulary,
    fused attention, fused MLP. `whole`: of those that every rank has whole: positions, a layer's experts in
    one.
    """
    return hidden * max(*(-(-width // tp) for width in cut), *whole, 1)
