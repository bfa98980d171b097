"""What ranks of an external program are handed besides their arguments."""

from __future__ import annotations

import pytest

from dsforge.catalog.engines import flavours
from dsforge.plan.resolve import make_plan
from dsforge.render.program import program_file
from tests.external_support.recipes import external

GPU = {"cluster": {"gpu": "h100-sxm-80gb"}, "train": {"precision": "bf16"}}


@pytest.mark.parametrize("changes", [{}, GPU])
def test_imports_that_nobody_has_are_served_on_every_machine(changes):
    plan = make_plan(external("megatron-deepspeed", changes))
    assert plan.external is not None
    assert program_file(plan, plan.external).stubs == ("deepspeed.compression",)


def test_imports_that_a_cpu_lacks_are_served_there_alone(monkeypatch):
    known = flavours.flavour_of("megatron-lm")
    plans = {
        name: make_plan(external("megatron-lm", changes)) for name, changes in (("cpu", {}), ("gpu", GPU))
    }
    made = {name: getattr(known, name) for name in known.__slots__} | {"stubs": ("apex",)}
    monkeypatch.setattr("dsforge.render.program.flavour_of", lambda _name: flavours.Flavour(**made))
    handed = {name: program_file(plan, plan.external).stubs for name, plan in plans.items() if plan.external}
    assert handed == {"cpu": ("apex",), "gpu": ()}


@pytest.mark.parametrize(("limit", "minutes"), [("90s", "2"), ("10m", "10"), (0, "525600")])
def test_deepspeed_is_told_how_long_a_collective_may_take(limit, minutes):
    plan = make_plan(external("megatron-deepspeed", {"launch": {"collective_timeout": limit}}))
    assert plan.launch.env["DEEPSPEED_TIMEOUT"] == minutes
    own = {"launch": {"env": {"DEEPSPEED_TIMEOUT": "3"}}}
    assert make_plan(external("megatron-deepspeed", own)).launch.env["DEEPSPEED_TIMEOUT"] == "3"
