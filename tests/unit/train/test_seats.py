from dataclasses import replace

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.train.model import stage_bounds
from dsforge.train.world import Coordinates, Seat, check_seats, coordinates

LAYOUT = {
    "layout__tp": 2,
    "layout__pp": 2,
    "layout__dp": 2,
    "layout__world_size": 8,
    "layout__gpus_per_node": 8,
}


def seats(plan):
    for rank in range(8):
        where = coordinates(rank, plan.layout)
        yield Seat(rank, rank, "a", where.shard, where.stage, where.replica, "cpu", where.part)


def test_tensor_parallel_is_innermost_and_the_pipeline_outermost(make_plan):
    layout = make_plan(**LAYOUT).layout
    assert coordinates(0, layout) == Coordinates(shard=0, stage=0, replica=0)
    assert coordinates(1, layout) == Coordinates(shard=1, stage=0, replica=0)
    assert coordinates(2, layout) == Coordinates(shard=0, stage=0, replica=1)
    assert coordinates(4, layout) == Coordinates(shard=0, stage=1, replica=0)


def test_the_planned_world_passes(make_plan):
    plan = make_plan(**LAYOUT)
    check_seats(list(seats(plan)), plan)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"replica": 0}, "rank 3 has replica 0, the plan says 1"),
        ({"device": "cuda:3"}, "rank 3 has device cuda, the plan says cpu"),
        ({"local_rank": 8}, "rank 3 is number 8 on a, the plan has 8 ranks a node"),
    ],
)
def test_a_rank_that_differs_is_named(make_plan, change, word):
    plan = make_plan(**LAYOUT)
    joined = list(seats(plan))
    joined[3] = replace(joined[3], **change)
    with pytest.raises(DsforgeError, match=word) as caught:
        check_seats(joined, plan)
    assert (caught.value.code, caught.value.exit_code, caught.value.place.rank) == ("DSF311", 4, 3)


def test_two_ranks_on_one_gpu_are_named(make_plan):
    plan = make_plan(**LAYOUT).model_copy(update={"accelerator": "cuda"})
    joined = [replace(seat, device=f"cuda:{seat.rank % 7}") for seat in seats(plan)]
    with pytest.raises(DsforgeError, match="ranks 0 and 7 share cuda:0 of a"):
        check_seats(joined, plan)


def test_stages_are_cut_where_the_plan_says(make_plan):
    layout = make_plan().layout
    stage = layout.stages[0]
    uneven = layout.model_copy(
        update={
            "stages": (
                stage.model_copy(update={"layers": 3}),
                stage.model_copy(update={"stage": 1, "first_layer": 3, "layers": 1}),
            )
        }
    )
    # word, position, layers 0..3, norm, head: 8 pieces; stage 1 begins at layer 3.
    assert stage_bounds(uneven, pieces=8, before_layers=2) == [0, 5, 8]
