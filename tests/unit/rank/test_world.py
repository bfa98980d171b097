from __future__ import annotations

import json

import pytest

from dsforge.rank.world import RankWorld, difference_from_plan, read_world


def test_world_is_read_from_the_launchers_variables():
    environ = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "CROSS_RANK": "1"}
    assert read_world(environ) == RankWorld(rank=5, local_rank=1, world_size=8, node=1)


def test_without_a_node_number_there_is_one_node():
    assert read_world({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}).node == 0


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"LOCAL_RANK": "0", "WORLD_SIZE": "1"}, "did not set RANK"),
        ({"RANK": "0", "LOCAL_RANK": "", "WORLD_SIZE": "1"}, "LOCAL_RANK to ''"),
        ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "-1"}, "WORLD_SIZE to '-1'"),
    ],
)
def test_a_missing_or_bad_variable_is_named(environ, words):
    with pytest.raises(ValueError, match=words):
        read_world(environ)


@pytest.mark.parametrize(
    ("world", "words"),
    [
        (RankWorld(rank=3, local_rank=1, world_size=4, node=1), None),
        (RankWorld(rank=0, local_rank=0, world_size=2, node=0), "started 2 ranks, the plan has 4"),
        (RankWorld(rank=4, local_rank=0, world_size=4, node=2), "rank 4, the plan has ranks 0 to 3"),
        (RankWorld(rank=2, local_rank=2, world_size=4, node=0), "local rank 0 of node 1"),
    ],
)
def test_difference_from_the_plan(tmp_path, world, words):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"layout": {"world_size": 4, "gpus_per_node": 2}}))
    difference = difference_from_plan(world, plan)
    assert difference is None if words is None else words in difference


def test_a_file_that_is_no_plan_is_an_error(tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text("{}")
    with pytest.raises(ValueError, match="layout"):
        difference_from_plan(RankWorld(0, 0, 1, 0), plan)
