from __future__ import annotations

import pytest

from dsforge.launch.mends import mend_of
from dsforge.plan.types import Plan, Program
from dsforge.records.reasons import Reason
from tests.launch_support.plans import make_plan


def plan(*, micro: int = 1, recompute: str = "full", zero: int = 0, **changes: object) -> Plan:
    made = make_plan(world_size=4, accelerator="cuda")
    return made.model_copy(
        update={
            "batch": made.batch.model_copy(update={"micro": micro}),
            "train": made.train.model_copy(update={"recompute": recompute}),
            "layout": made.layout.model_copy(update={"zero": zero, "dp": 4, "engine": "module", **changes}),
        }
    )


@pytest.mark.parametrize(
    ("made", "edit"),
    [
        (plan(micro=8, recompute="none"), "batch.micro=4 instead of 8"),
        (plan(micro=9), "batch.micro=3 instead of 9"),
        (plan(micro=5), "batch.micro=1 instead of 5"),
        (plan(recompute="selective"), "train.recompute=full"),
        (plan(zero=1), "parallel.zero=2 instead of 1"),
        (plan(zero=3), "a larger parallel.tp or parallel.pp"),
        (plan(zero=1, engine="pipeline"), "a larger parallel.tp or parallel.pp"),
        (plan(dp=1), "a larger parallel.tp or parallel.pp"),
    ],
)
def test_a_rank_holds_less_by_the_cheapest_edit(made, edit):
    told = mend_of(Reason.OUT_OF_MEMORY, made)
    assert told is not None
    assert told.startswith(edit)
    on_cpu = made.model_copy(update={"accelerator": "cpu"})
    assert mend_of(Reason.HOST_MEMORY, on_cpu) == told


def test_beside_gpus_the_hosts_memory_is_another():
    told = mend_of(Reason.HOST_MEMORY, plan(micro=8))
    assert told is not None
    assert "data.workers=" in told
    assert "batch.micro" not in told


def test_no_key_is_named_that_a_script_may_not_be_told():
    script = Program.model_construct(flavour="script")
    made = plan(micro=8).model_copy(update={"external": script})
    assert mend_of(Reason.OUT_OF_MEMORY, made) is None


@pytest.mark.parametrize("reason", [Reason.KILLED, Reason.HUNG, Reason.NUMERICS])
def test_where_no_edit_is_known_none_is_told(reason):
    assert mend_of(reason, plan(micro=8)) is None
