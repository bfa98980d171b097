"""Coordinates and groups, against a formula, DeepSpeed's topology and Megatron's generator."""

from __future__ import annotations

import pytest

from dsforge.layout.ranks import Coordinates, Degrees

LAYOUTS = [Degrees(tp=2, pp=2, dp=2), Degrees(tp=4, pp=1, dp=3), Degrees(tp=1, pp=3, dp=2), Degrees(3, 5, 4)]


def test_the_eight_ranks_of_2_x_2_x_2():
    degrees = Degrees(tp=2, pp=2, dp=2)
    assert [degrees.coordinates(rank) for rank in range(8)] == [
        Coordinates(tp=0, dp=0, pp=0),
        Coordinates(tp=1, dp=0, pp=0),
        Coordinates(tp=0, dp=1, pp=0),
        Coordinates(tp=1, dp=1, pp=0),
        Coordinates(tp=0, dp=0, pp=1),
        Coordinates(tp=1, dp=0, pp=1),
        Coordinates(tp=0, dp=1, pp=1),
        Coordinates(tp=1, dp=1, pp=1),
    ]
    assert list(degrees.groups("tp")) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert list(degrees.groups("dp")) == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert list(degrees.groups("pp")) == [(0, 4), (1, 5), (2, 6), (3, 7)]


@pytest.mark.parametrize("degrees", LAYOUTS)
def test_rank_and_coordinates_are_inverse(degrees: Degrees):
    seen = [degrees.rank(degrees.coordinates(rank)) for rank in range(degrees.world_size)]
    assert seen == list(range(degrees.tp * degrees.pp * degrees.dp))


@pytest.mark.parametrize("degrees", LAYOUTS)
def test_deepspeed_places_ranks_alike(degrees: Degrees):
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

    topology = PipeModelDataParallelTopology(num_pp=degrees.pp, num_mp=degrees.tp, num_dp=degrees.dp)
    assert topology.world_size() == degrees.world_size
    for rank in range(degrees.world_size):
        at = degrees.coordinates(rank)
        assert topology.get_rank(pipe=at.pp, data=at.dp, model=at.tp) == rank
    for axis, name in (("tp", "model"), ("dp", "data"), ("pp", "pipe")):
        if getattr(degrees, axis) > 1:  # the library lists no groups along an axis of one
            theirs = sorted(tuple(group) for group in topology.get_axis_comm_lists(name))
            assert theirs == sorted(degrees.groups(axis))


@pytest.mark.parametrize("degrees", LAYOUTS)
def test_megatron_places_ranks_alike(degrees: Degrees):
    from megatron.core.parallel_state import RankGenerator

    generator = RankGenerator(tp=degrees.tp, ep=1, dp=degrees.dp, pp=degrees.pp, cp=1, order="tp-cp-ep-dp-pp")
    for axis in ("tp", "dp", "pp"):
        theirs = sorted(tuple(group) for group in generator.get_ranks(axis))
        assert theirs == sorted(degrees.groups(axis))


PARTS = [Degrees(tp=2, pp=2, dp=2, cp=2, ep=2), Degrees(tp=1, pp=2, dp=4, cp=3, ep=6)]


@pytest.mark.parametrize("degrees", PARTS)
def test_megatron_places_parts_of_sequences_and_experts_alike(degrees: Degrees):
    from megatron.core.parallel_state import RankGenerator

    sizes = {"tp": degrees.tp, "dp": degrees.dp, "pp": degrees.pp, "cp": degrees.cp}
    dense = RankGenerator(**sizes, ep=1, order="tp-cp-ep-dp-pp")
    for axis in ("tp", "cp", "dp", "pp"):
        theirs = sorted(tuple(group) for group in dense.get_ranks(axis))
        assert theirs == sorted(degrees.groups(axis))
    assert [degrees.rank(degrees.coordinates(rank)) for rank in range(degrees.world_size)] == list(
        range(degrees.world_size)
    )
    copies = degrees.tp * degrees.cp * degrees.dp // degrees.ep
    # Experts are whole on their ranks: TP of 1 among them.
    experts = RankGenerator(tp=1, ep=degrees.ep, dp=copies, pp=degrees.pp, cp=1, order="tp-cp-ep-dp-pp")
    assert sorted(tuple(group) for group in experts.get_ranks("ep")) == list(degrees.groups("ep"))
