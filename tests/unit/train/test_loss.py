"""The loss of a vocabulary that one shard holds whole."""

from __future__ import annotations

import math

import pytest
import torch

from dsforge.train.loss import token_loss


def test_the_mean_over_tokens_leaves_the_padding_out():
    """Two tokens over three words: log(1 + 1 + 2) - log 2, and log 3; the fourth column is padding."""
    logits = torch.tensor([[[0.0, 0.0, math.log(2.0), 99.0]], [[5.0, 5.0, 5.0, -99.0]]], requires_grad=True)
    loss = token_loss(3, 4, 1, 0)(logits, torch.tensor([[2, 0]]))
    assert loss.item() == pytest.approx((math.log(2.0) + math.log(3.0)) / 2, abs=1e-6)
    loss.backward()
    assert logits.grad[..., 3].tolist() == [[0.0], [0.0]]
    assert logits.grad[1, 0, :3].tolist() == pytest.approx([-1 / 3, 1 / 6, 1 / 6])


def test_labels_are_batch_first_and_logits_sequence_first():
    logits = torch.full((2, 3, 8), -50.0)
    labels = torch.tensor([[1, 2], [3, 4], [5, 6]])
    for sample in range(3):
        for place in range(2):
            logits[place, sample, labels[sample, place]] = 50.0
    assert token_loss(8, 8, 1, 0)(logits, labels).item() == pytest.approx(0.0, abs=1e-6)


def test_bf16_logits_are_summed_in_fp32():
    loss = token_loss(1024, 1024, 1, 0)(torch.zeros(1, 1, 1024, dtype=torch.bfloat16), torch.tensor([[7]]))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(math.log(1024), abs=1e-5)
