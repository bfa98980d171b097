"""DeepSpeed's own loss scale, as the engine moves it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dsforge.base.errors import DsforgeError
from dsforge.train.engine_scale import EngineScale


class Optimizer(SimpleNamespace):
    """What a ZeRO optimizer has of its loss scale, around the library's scaler."""

    loss_scaler: Any
    overflow: bool

    @property
    def loss_scale(self) -> float:
        """What losses are multiplied by."""
        return float(self.loss_scaler.cur_scale)

    def _update_scale(self, overflow: bool) -> None:
        self.loss_scaler.update_scale(overflow)


@pytest.fixture
def optimizer(monkeypatch: pytest.MonkeyPatch) -> Optimizer:
    from deepspeed.runtime.fp16 import loss_scaler

    monkeypatch.setattr(loss_scaler.dist, "get_rank", lambda: 1)
    scaler = loss_scaler.DynamicLossScaler(4.0, 2, 1, 1, False, dtype=torch.float16)
    return Optimizer(loss_scaler=scaler, overflow=False)


def test_a_step_is_divided_by_the_scale_that_it_was_multiplied_by(optimizer: Optimizer):
    scale = EngineScale(optimizer)
    used, divided = [], []
    for _ in range(4):
        optimizer._update_scale(False)  # as the optimizer does in the middle of a step
        divided.append(optimizer.loss_scale)
        used.append(scale.follow())
    assert used == divided == [4.0, 4.0, 4.0, 8.0]


def test_an_overflow_halves_it_down_to_one_and_then_ends_the_run(optimizer: Optimizer):
    scale = EngineScale(optimizer)
    optimizer.overflow = True
    assert [scale.follow(), scale.follow(), optimizer.loss_scale] == [4.0, 2.0, 1.0]
    with pytest.raises(DsforgeError) as caught:
        scale.follow()
    assert caught.value.code == "DSF781"
