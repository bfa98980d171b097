"""What three ranks tell of their copies."""

from __future__ import annotations

import json

import torch.multiprocessing

from tests.support.check_ranks import RANKS, compare


def test_every_rank_tells_the_same_first_difference(tmp_path, make_plan):
    checks = {"gradients_every": 2, "parameters_every": 3}
    plan = make_plan(layout__dp=RANKS, layout__world_size=RANKS, train__checks=checks)
    torch.multiprocessing.spawn(compare, (tmp_path, plan), RANKS)
    told, *others = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(RANKS))
    assert others == [told, told]
    assert told["first"] is None
    assert told["equal"] == [None] * 6
    assert told["made"] == {"gradients": 3, "parameters": 3}
    assert told["unwatched"] is None
    assert told["one"] == [
        "DSF808",
        "b differs after step 9: on rank 2 (stage 0, replica 2) on host2 from what 2 other ranks hold",
    ]
    everybody = ", ".join(f"rank {rank} (stage 0, replica {rank}) on host{rank}" for rank in range(RANKS))
    assert told["all"] == [
        "DSF808",
        (
            f"a differs after step 10: {everybody} hold different ones, and no majority the same; "
            "of 1 others copies differ, too"
        ),
    ]
    assert told["dealt out"] is None
    assert told["no copies"] == {"gradients": 0, "parameters": 0}
    assert told["left out"] == ["DSF810", "no replica updates element 15 of b on stage 0"]
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["data"] for event in events] == [
        {"step": 9, "parameter": "b", "ranks": [2], "hosts": ["host2"]},
        {"step": 10, "parameter": "a", "ranks": [0, 1, 2], "hosts": ["host0", "host1", "host2"]},
    ]
