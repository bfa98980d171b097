"""micro x accumulation x DP is the global batch, or a finding suggests values that are legal."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dsforge.plan.resolve import examine, make_plan
from tests.support.recipes import loaded, plan_of


def _changes(size: int, micro: int, dp: int) -> dict[str, Any]:
    return {
        "cluster": {"gpus_per_node": dp},
        "parallel": {"tp": 1, "pp": 1, "dp": dp},
        "batch": {"global": size, "micro": micro},
    }


def _refused(size: int, micro: int, dp: int) -> list[Any]:
    recipe = loaded(_changes(size, micro, dp))
    return [found for found in examine(recipe) if found.code == "DSF111"]


@given(st.integers(1, 600), st.integers(1, 40), st.integers(1, 24))
def test_exact_or_refused_with_legal_values(size: int, micro: int, dp: int):
    found = _refused(size, micro, dp)
    if size % (micro * dp) == 0:
        assert found == []
        batch = make_plan(loaded(_changes(size, micro, dp))).batch
        assert batch.micro * batch.accumulation_steps * dp == batch.global_size == size
        return
    (finding,) = found
    assert finding.fix is not None
    assert finding.fix.key == "batch.global"
    assert _refused(finding.fix.value, micro, dp) == []
    hint = finding.hint or ""
    globals_named, _, micros_named = hint.partition("micro")
    for value in map(int, re.findall(r"\d+", globals_named)):
        assert _refused(value, micro, dp) == []
    for value in map(int, re.findall(r"\d+", micros_named)):
        assert _refused(size, value, dp) == []


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 24))
def test_accumulation_is_what_is_left(micro: int, accumulation: int, dp: int):
    size = micro * accumulation * dp
    plan = plan_of(_changes(size, micro, dp))
    assert plan.batch.accumulation_steps == accumulation
    assert plan.layout.dp == dp
