"""fp16 under DeepSpeed on two ranks, told that the CPU computes in it: the losses of one plain process."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.replica_ranks import FAR_TOO_LARGE, SMALL_SCALE
from tests.support.run_cases import assert_equals_one_process, run_all

FP16 = {"train": {"precision": "fp16"}}
CASES: dict[str, dict[str, Any]] = {
    "zero-1": {"zero": 1, **FP16},
    "zero-2": {"zero": 2, **FP16},
    "zero-3": {"zero": 3, **FP16},
    "stages-tied": {"zero": 1, "pp": 2, "model": {"arch": "gpt", "kv_heads": 4, "tied": True}, **FP16},
    "zero-2-on-cpu": {"zero": 2, "offload": {"optimizer": "cpu"}, **FP16},
    "zero-2-hugging-face": {"trainer": "transformers", "zero": 2, **FP16},
    "zero-3-hugging-face": {"trainer": "transformers", "zero": 3, **FP16},
    # Last: DeepSpeed never forgets the groups that it makes for it.
    "autotp-zero-1": {"trainer": "transformers", "zero": 1, "tp": 2, **FP16},
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_all(tmp_path_factory.mktemp("ranks"), CASES)


@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_one_process_and_a_checkpoint_keeps_the_scale(told: dict[str, Any], name: str):
    assert_equals_one_process(told[name], CASES[name])
    steps = [*told[name]["steps"], *told[name]["resumed"]]
    assert {step["scale"] for step in steps} == {SMALL_SCALE}


@pytest.mark.parametrize("name", CASES)
def test_gradients_that_overflow_skip_the_step_and_halve_the_scale(told: dict[str, Any], name: str):
    overflowed = told[f"{name}-overflow"]
    assert overflowed["skipped"]
    assert overflowed["same_weights"]
    assert (overflowed["scale"], overflowed["next_scale"]) == (FAR_TOO_LARGE, FAR_TOO_LARGE / 2)
