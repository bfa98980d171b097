"""The sum over all ranks where a rank fails: through the real launcher, on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsforge.base.errors import Finding
from dsforge.launch.all_reduce import all_reduce
from dsforge.launch.types import LaunchRequest
from tests.launch_support.bundles import make_bundle
from tests.launch_support.plans import make_plan

pytestmark = pytest.mark.e2e


def test_a_rank_that_fails_is_told_and_nothing_stays(tmp_path: Path):
    plan = make_plan(restarts=2)
    request = LaunchRequest(
        plan=plan,
        bundle=make_bundle(plan),
        runs_root=tmp_path / "runs",
        recipe_root=tmp_path,
        recipe_path="recipe.yaml",
        recipe_text="version: 1\n",
        command=("dsforge", "preflight"),
        environ=dict(os.environ),
        corpus=str(tmp_path / "corpus"),
        extra_environ={"TINY_FAIL_RANK": "1", "TINY_FAIL_STEP": "1"},
    )
    planned = []
    found = all_reduce(request, lambda plan: planned.append(plan) or make_bundle(plan), 60.0)
    assert isinstance(found, Finding)
    assert (found.code, found.place and found.place.rank) == ("DSF275", 1)
    assert "rank 1 fails on purpose" in found.message
    (other,) = planned
    assert (other.layout, other.launch.restarts, other.checkpoint.every_steps) == (plan.layout, 0, 0)
    assert list(tmp_path.iterdir()) == []
