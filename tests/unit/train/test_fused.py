"""Which AdamW the ranks take."""

from __future__ import annotations

import torch

from dsforge.train.fused import with_usable_optimizer

CONFIG = {"optimizer": {"type": "AdamW", "params": {"lr": 1.0}}, "zero_optimization": {"stage": 1}}


class NoCompiler:
    """Stands in for deepspeed's builder on a machine without nvcc."""

    def load(self) -> None:
        raise RuntimeError("no nvcc here")


def test_where_deepspeeds_cannot_be_built_pytorchs_fused_one_is_taken(monkeypatch, caplog):
    monkeypatch.setattr("deepspeed.ops.op_builder.FusedAdamBuilder", NoCompiler)
    found = with_usable_optimizer(CONFIG, torch.device("cuda", 0))
    assert found["optimizer"]["params"] == {"lr": 1.0, "torch_adam": True, "fused": True}
    assert "no nvcc here" in caplog.text
    assert CONFIG["optimizer"]["params"] == {"lr": 1.0}


def test_a_bundle_that_asks_for_pytorchs_gets_it():
    asked = {"optimizer": {"type": "AdamW", "params": {"torch_adam": True}}}
    assert with_usable_optimizer(asked, torch.device("cuda", 0)) == asked
    assert with_usable_optimizer(CONFIG, torch.device("cpu")) == CONFIG
