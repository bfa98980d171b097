import pytest
import torch

from dsforge.train.copies import Key, in_parts, minority, not_dealt_out_once
from dsforge.train.digest import digest


def test_a_digest_tells_a_bit_a_place_and_a_length():
    values = torch.linspace(-1, 1, 1000)
    same = digest(values)
    assert digest(values.clone()) == same
    swapped = values.clone()
    swapped[[3, 700]] = swapped[[700, 3]]
    flipped = values.clone()
    flipped.view(torch.int32)[999] ^= 1
    others = [swapped, flipped, values[:-1], torch.zeros(1000), -torch.zeros(1000), values.bfloat16()]
    assert len({int(digest(one)) for one in (values, *others)}) == 7
    assert digest(values[:0]) == 0


def test_a_digest_is_the_same_however_much_is_looked_at_together(monkeypatch):
    values = torch.linspace(-1, 1, 1000, dtype=torch.bfloat16)
    whole = digest(values)
    monkeypatch.setattr("dsforge.train.digest._CHUNK", 7)
    assert digest(values) == whole


@pytest.mark.parametrize(
    ("numbers", "ranks", "most"),
    [
        ([5, 5, 7, 5], (2,), 3),
        ([None, 1, 2, 2, None, 3], (1, 5), 2),
        ([1, None, 2], (0, 2), 0),
        ([1, 1, 2, 2, 3], (0, 1, 2, 3, 4), 0),
    ],
)
def test_those_differ_that_hold_another_number_than_most(numbers, ranks, most):
    assert minority(numbers) == (ranks, most)


def part(start: int, length: int, name: str = "w", shard: int = -1) -> Key:
    return Key(name, -1, shard, start, length, 10)


def test_tensors_in_parts_are_counted_once():
    whole, cut, alone = part(0, 10), (part(0, 6, "v"), part(6, 4, "v")), (part(0, 10, "u"), part(0, 0, "u"))
    assert (in_parts([whole]), in_parts([whole, *cut, *alone])) == (0, 2)


@pytest.mark.parametrize(
    ("by_replica", "wrong"),
    [
        ([[part(0, 10)], [part(0, 10)]], None),
        ([[part(0, 6)], [part(6, 4)]], None),
        ([[part(0, 0)], [part(0, 10)]], None),
        ([[part(6, 4), part(0, 5, "v")], [part(0, 6), part(5, 5, "v")]], None),
        ([[part(0, 6)], [part(5, 5)]], "two replicas update element 5 of w on stage 0"),
        ([[part(0, 10)], [part(0, 4)]], "two replicas update element 0 of w on stage 0"),
        ([[part(0, 4)], [part(6, 4)]], "no replica updates element 4 of w on stage 0"),
        ([[part(0, 4)], [part(4, 4)]], "no replica updates element 8 of w on stage 0, which has 10"),
        ([[part(0, 0)], [part(0, 0)]], "no replica updates element 0 of w on stage 0, which has 10"),
    ],
)
def test_replicas_hold_all_or_parts_side_by_side(make_plan, by_replica, wrong):
    layout = make_plan(layout__dp=2, layout__world_size=2).layout
    assert not_dealt_out_once(by_replica, layout) == wrong


def test_shards_and_stages_deal_out_for_themselves(make_plan):
    layout = make_plan(layout__tp=2, layout__pp=2, layout__dp=1, layout__world_size=4).layout
    tied = [[part(0, 10, shard=0)], [part(0, 10, shard=1)]]
    assert not_dealt_out_once([*tied, *tied], layout) is None
    lost = [*tied, tied[0], [part(0, 9, shard=1)]]
    assert not_dealt_out_once(lost, layout) == "no replica updates element 9 of w on stage 1, which has 10"
