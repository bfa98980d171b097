"""GPipe in `forge`: another order of passes, the same training to the bit, also after a resume."""

from __future__ import annotations

import json

import pytest
import torch.multiprocessing

from dsforge.train import reference
from tests.support.gpipe_ranks import train
from tests.support.recipes import plan_of
from tests.support.replica_ranks import Text

STEPS = 6


@pytest.fixture(scope="module")
def plans():
    def plan(schedule):
        return plan_of(
            {
                "model": {"arch": "gpt", "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 4}
                | {"ffn_hidden": 80, "vocab": 61, "tied": True},
                "cluster": {"gpus_per_node": 2},
                "parallel": {"tp": 1, "pp": 2, "dp": 1, "zero": 1, "schedule": schedule},
                "batch": {"global": 8, "micro": 2, "seq_len": 16},
                "train": {"steps": STEPS, "dropout": 0.1, "attention_dropout": 0.1, "precision": "fp32"},
                "optimizer": {"lr": 2.0e-3, "warmup_steps": 0, "grad_clip": 0.3, "lr_schedule": "constant"},
            }
        )

    return {schedule: plan(schedule) for schedule in ("1f1b", "gpipe")}


def test_gpipe_trains_as_1f1b_does_and_goes_on_from_its_checkpoints(tmp_path, plans):
    torch.multiprocessing.spawn(train, (tmp_path, plans), nprocs=2)
    stages = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    outcome = reference.train(plans["gpipe"], Text(plans["gpipe"]))
    assert outcome.clipped_steps == STEPS
    half = STEPS // 2
    for stage, of_1f1b in zip(stages, ("FFBFBFBB", "FBFBFBFB"), strict=True):
        began = stage["gpipe"]["from the start"]
        assert began["losses"] == pytest.approx(outcome.losses[:half], abs=1e-5)
        assert began["grad_norms"] == pytest.approx(outcome.grad_norms[:half], rel=1e-4)
        for saved in stage:
            went_on = stage["gpipe"][f"after {saved}"]
            assert went_on["losses"] == pytest.approx(outcome.losses[half:], abs=1e-5)
        assert list(stage["gpipe"]) == ["from the start", "after 1f1b", "after gpipe"]
        for part, gpipe in stage["gpipe"].items():
            other = stage["1f1b"][part]
            assert (gpipe.pop("passes"), other.pop("passes")) == ("FFFFBBBB", of_1f1b)
            assert gpipe == other
