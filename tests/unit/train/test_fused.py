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


def test_what_is_offloaded_needs_deepspeeds_for_the_host(monkeypatch, caplog):
    monkeypatch.setattr("deepspeed.ops.op_builder.CPUAdamBuilder", NoCompiler)
    offloading = {**CONFIG, "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}}
    found = with_usable_optimizer(offloading, torch.device("cuda", 0))
    assert found["optimizer"]["params"]["torch_adam"]
    assert "no nvcc here" in caplog.text


def test_an_optimizer_of_ours_needs_none():
    assert with_usable_optimizer({"train_batch_size": 1}, torch.device("cuda", 0)) == {"train_batch_size": 1}


def test_a_bundle_that_asks_for_pytorchs_gets_it():
    asked = {"optimizer": {"type": "AdamW", "params": {"torch_adam": True}}}
    assert with_usable_optimizer(asked, torch.device("cuda", 0)) == asked
    assert with_usable_optimizer(CONFIG, torch.device("cpu")) == CONFIG
