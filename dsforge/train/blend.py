"""Which data set a sample of a blend comes from: a pattern that repeats, small for any number of samples.

Weights become whole numbers a_d of sum A without a common divisor. Up to `LONGEST_PATTERN` they are the
pattern: A places, a_d of them for set d. Beyond, set d has the whole part of a_d x P / A places of a pattern
of P = LONGEST_PATTERN; the places left over in each pattern are dealt out by another blend, of the fractions.
"""

from __future__ import annotations

import heapq
import math
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

LONGEST_PATTERN = 1 << 18
"""Places: a few megabytes and half a second. Weights of up to five decimals that sum to 1 are exact in it."""


def whole_weights(weights: Sequence[float | Fraction]) -> tuple[int, ...]:
    """Return the smallest whole numbers in the same ratio; a float counts as the decimal it is written as."""
    exact = [Fraction(str(weight)) for weight in weights]
    scale = math.lcm(*(weight.denominator for weight in exact))
    scaled = [int(weight * scale) for weight in exact]
    divisor = math.gcd(*scaled)
    return tuple(number // divisor for number in scaled)


def pattern(counts: Sequence[int]) -> array[int]:
    """Return an order of sum(counts) places, counts[d] of them d, that is fair from its start to every place.

    After n places set d has had within 1 - 1 / (2 D - 2) of n x counts[d] / sum(counts), D the number of
    sets (Tijdeman 1980, "The chairman assignment problem"). What lets the j-th place of a set be neither too
    early nor too late is a window; the window that closes first is served first.
    """
    total = sum(counts)
    slack = max(1, 2 * sum(count > 0 for count in counts) - 2)
    waiting = [_window(d, 1, count, total, slack) for d, count in enumerate(counts) if count]
    heapq.heapify(waiting)
    ready: list[tuple[int, int, int]] = []
    order = array("L")
    for place in range(1, total + 1):
        while waiting and waiting[0][0] <= place:
            _, last, d, turn = heapq.heappop(waiting)
            heapq.heappush(ready, (last, d, turn))
        _, d, turn = heapq.heappop(ready)
        order.append(d)
        if turn < counts[d]:
            heapq.heappush(waiting, _window(d, turn + 1, counts[d], total, slack))
    return order


def _window(d: int, turn: int, count: int, total: int, slack: int) -> tuple[int, int, int, int]:
    """Return (first place, last place, d, turn): where a set's turn may stand, all counted from 1."""
    first = -(-((turn - 1) * slack + 1) * total // (slack * count))
    last = (turn * slack - 1) * total // (slack * count) + 1
    return first, last, d, turn


class Blend:
    """An endless sequence of data sets in the ratio of their weights, any place of it at once.

    At every prefix a set is within one sample of its weight where the pattern is exact. Elsewhere each level
    of patterns adds its own place and the place that it was dealt: three samples up to 2^36 / D places.
    """

    def __init__(self, weights: Sequence[float | Fraction]) -> None:
        whole = whole_weights(weights)
        total = sum(whole)
        self._sets = len(whole)
        self._length = min(total, LONGEST_PATTERN)
        shares = [Fraction(number * self._length, total) for number in whole]
        counts = [math.floor(share) for share in shares]
        self._left = self._length - sum(counts)
        """Places of each pattern that another blend deals out; they stand in it as set D."""
        self._fractions = [share - count for share, count in zip(shares, counts, strict=True)]
        self._order = pattern([*counts, self._left])
        self._places = [array("L") for _ in range(self._sets + 1)]
        for place, d in enumerate(self._order):
            self._places[d].append(place)

    @cached_property
    def _others(self) -> tuple[list[int], Blend]:
        """The sets that have a part in the places left over, and the blend of them."""
        sets = [d for d, fraction in enumerate(self._fractions) if fraction]
        return sets, Blend([self._fractions[d] for d in sets])

    def set_at(self, place: int) -> int:
        """Return the set that a place of the sequence belongs to."""
        repeat, inside = divmod(place, self._length)
        d = self._order[inside]
        if d < self._sets:
            return d
        sets, blend = self._others
        return sets[blend.set_at(repeat * self._left + bisect_left(self._places[d], inside))]

    def count(self, d: int, places: int) -> int:
        """Return how many of the first `places` places belong to a set."""
        repeats, inside = divmod(places, self._length)
        own = repeats * len(self._places[d]) + bisect_left(self._places[d], inside)
        left = repeats * self._left + bisect_left(self._places[self._sets], inside)
        if not left or not self._fractions[d]:
            return own
        sets, blend = self._others
        return own + blend.count(sets.index(d), left)
