"""DeepSpeed's trainers on two ranks: offload, our own optimizers and AutoTP train as one plain process."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.run_cases import assert_equals_one_process, run_all

LION = {"type": "lion", "betas": [0.9, 0.99], "lr": 1e-3}
ON_CPU = {"optimizer": "cpu", "parameters": "cpu"}
SPLIT = {"trainer": "transformers", "tp": 2}
# AutoTP comes last: DeepSpeed never forgets the groups that it makes for it.
CASES: dict[str, dict[str, Any]] = {
    "zero-1-lion-on-cpu": {"zero": 1, "offload": {"optimizer": "cpu"}, "optimizer": LION},
    "zero-2-on-cpu": {"zero": 2, "offload": {"optimizer": "cpu"}},
    "zero-3-all-on-cpu": {"zero": 3, "offload": ON_CPU},
    "zero-2-sgd": {"zero": 2, "optimizer": {"type": "sgd", "lr": 0.5, "momentum": 0.8}},
    "zero-3-lion-hugging-face": {"trainer": "transformers", "zero": 3, "optimizer": LION},
    "autotp-zero-0": {**SPLIT, "zero": 0},
    "autotp-zero-1-norms-of-heads": {**SPLIT, "zero": 1, "model": {"arch": "qwen3"}},
    "autotp-zero-2-biases-tied-recomputed": {
        **SPLIT,
        "zero": 2,
        "model": {"arch": "qwen2", "tied": True},
        "train": {"recompute": "full"},
    },
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_all(tmp_path_factory.mktemp("ranks"), CASES)


@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_one_process_and_a_checkpoint_changes_none(told: dict[str, Any], name: str):
    assert_equals_one_process(told[name], CASES[name])
