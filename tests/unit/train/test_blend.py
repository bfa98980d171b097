import itertools
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsforge.train.blend import LONGEST_PATTERN, Blend, pattern, whole_weights
from dsforge.train.shuffle import shuffle_key, shuffled


def test_a_pattern_by_hand():
    """Two sets are never more than half a sample off: of 3:1 the second or third place is set 1's."""
    assert pattern([3, 1]).tolist() == [0, 0, 1, 0]
    assert pattern([1, 1]).tolist() == [0, 1]
    assert pattern([2]).tolist() == [0, 0]
    assert sorted(pattern([4, 2, 1])) == [0, 0, 0, 0, 1, 1, 2]


def test_weights_are_read_as_they_are_written():
    assert whole_weights([0.7, 0.2, 0.1]) == (7, 2, 1)
    assert whole_weights([7, 2.0, 1]) == (7, 2, 1)
    assert whole_weights([30.0, 10.0]) == (3, 1)
    assert whole_weights([1e-5, 0.99999]) == (1, 99_999)


def test_three_to_one_for_ever():
    blend = Blend([0.75, 0.25])
    assert [blend.set_at(place) for place in range(8)] == [0, 0, 1, 0, 0, 0, 1, 0]
    assert (blend.count(0, 6), blend.count(1, 6)) == (5, 1)
    assert (blend.count(0, 4 * 10**15 + 3), blend.count(1, 4 * 10**15 + 3)) == (3 * 10**15 + 2, 10**15 + 1)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_every_prefix_of_a_pattern_is_within_its_bound(counts: list[int]):
    total = sum(counts)
    had = [0] * len(counts)
    for place, d in enumerate(pattern(counts), start=1):
        had[d] += 1
        for count, got in zip(counts, had, strict=True):
            assert abs(got - Fraction(place * count, total)) <= 1 - Fraction(1, max(2, 2 * len(counts) - 2))
    assert had == counts


weights = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=5)


@settings(max_examples=10, deadline=None)
@given(weights, st.integers(0, 10**12))
def test_the_counts_of_any_blend_step_with_its_sets(values: list[float], start: int):
    blend = Blend(values)
    had = [blend.count(d, start) for d in range(len(values))]
    assert sum(had) == start
    for place in range(start, start + 50):
        d = blend.set_at(place)
        assert blend.count(d, place) == had[d]
        had[d] += 1
    assert [blend.count(d, start + 50) for d in range(len(values))] == had


@settings(max_examples=10, deadline=None)
@given(weights, st.integers(0, 2**30))
def test_any_blend_keeps_to_its_weights_far_away(values: list[float], places: int):
    blend = Blend(values)
    exact = [Fraction(str(value)) for value in values]
    limit = 1 if sum(whole_weights(values)) <= LONGEST_PATTERN else 3
    for d, weight in enumerate(exact):
        share = weight / sum(exact)
        assert abs(blend.count(d, places) - share * places) < limit


def test_weights_that_no_pattern_holds_are_not_rounded_away():
    """Of 1e9 samples 0.00000005 of the weight are 50, though it is less than a place in the pattern."""
    blend = Blend([0.5, 0.49999995, 0.00000005])
    counts = [blend.count(d, 10**9) for d in range(3)]
    assert sum(counts) == 10**9
    assert counts == pytest.approx([500_000_000, 499_999_950, 50], abs=2)


def test_a_blend_of_a_billion_samples_is_small():
    blend = Blend([0.123456789, 0.4, 0.333333333, 0.143209878])
    held = sum(len(places) for places in blend._places) + len(blend._order)
    assert held == 2 * LONGEST_PATTERN
    assert blend.set_at(10**9) in range(4)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**63 - 1), st.integers(0, 100))
def test_a_shuffled_order_has_every_number_once(size: int, seed: int, epoch: int):
    key = shuffle_key(seed, epoch)
    assert sorted(shuffled(place, size, key) for place in range(size)) == list(range(size))


def test_a_shuffled_order_is_another_one_for_each_seed_and_epoch():
    orders = {
        tuple(shuffled(place, 50, shuffle_key(seed, epoch)) for place in range(50))
        for seed in range(10)
        for epoch in range(10)
    }
    assert len(orders) == 100
    assert tuple(range(50)) not in orders


def test_a_shuffled_order_looks_random():
    """Pearson's chi-square of where 20,000 numbers go, 16 x 16 fields; 255 degrees of freedom."""
    size, side = 20_000, 16
    fields = [[0] * side for _ in range(side)]
    key = shuffle_key(1234, 0)
    order = [shuffled(place, size, key) for place in range(size)]
    for place, number in enumerate(order):
        fields[place * side // size][number * side // size] += 1
    expected = size / side**2
    chi = sum((found - expected) ** 2 / expected for row in fields for found in row)
    assert 180 < chi < 350
    follow = sum(b == a + 1 for a, b in itertools.pairwise(order))
    assert follow < 10  # neighbours of the text are not neighbours of the order


def test_a_place_of_a_very_large_order_needs_no_list():
    key = shuffle_key(1, 0)
    found = {shuffled(place, 10**15, key) for place in range(1000)}
    assert len(found) == 1000
    assert max(found) > 9 * 10**14
    assert min(found) < 10**14
