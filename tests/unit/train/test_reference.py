import math
from types import SimpleNamespace

import pytest
import torch
from pydantic import BaseModel
from torch.nn import functional

from dsforge.ops.references import READ
from dsforge.train import reference, reference_model
from dsforge.train.reader import IndexedCorpus


def test_the_first_loss_of_a_small_deviation_is_that_of_a_uniform_guess(make_plan, make_corpus):
    plan = make_plan(model__init_std=1e-4, train__steps=1)
    outcome = reference.train(plan, IndexedCorpus(make_corpus([list(range(61))]), 8, seed=7, vocab=61))
    assert outcome.losses[0] == pytest.approx(math.log(61), abs=1e-4)


def test_a_reference_reads_nothing_that_its_key_lacks(make_plan, make_corpus):
    """Layouts with the same key are held against the same run."""
    plan = make_plan(train__steps=2)
    corpus = IndexedCorpus(make_corpus([list(range(61))]), 8, seed=7, vocab=61)
    bare = SimpleNamespace(
        **{section: _without(getattr(plan, section), unread) for section, unread in READ.items()}
    )
    assert reference.train(bare, corpus).losses == reference.train(plan, corpus).losses


def _without(section: BaseModel, unread: frozenset[str]) -> BaseModel:
    """Return a section that has no such fields, whoever asks."""
    read = {name: getattr(section, name) for name in type(section).model_fields if name not in unread}
    bare = type(section).model_construct(**read)
    for name in unread:
        bare.__dict__.pop(name, None)  # a default
    return bare


def test_one_step_of_adamw_by_hand(make_plan, make_corpus):
    """The first AdamW step moves a weight by lr x sign(gradient), after decay; norms do not decay."""
    plan = make_plan(train__steps=1, optimizer__warmup_steps=0)
    corpus = IndexedCorpus(make_corpus([list(range(61))]), 8, seed=7, vocab=61)
    before = reference_model.first_weights(plan.model, 7)
    after = reference.train(plan, corpus).weights
    moved = after["final_norm.weight"] - before["final_norm.weight"]
    assert moved.abs().max().item() == pytest.approx(0.01, rel=1e-3)
    # Row 60 of the input table is only ever a label: its gradient is zero, decay alone moves it.
    still = before["embedding.word.weight"][60] * (1 - 0.01 * 0.1)
    assert torch.allclose(after["embedding.word.weight"][60], still, rtol=0, atol=1e-8)


def test_layer_norm_and_rms_norm_are_pytorchs(make_plan):
    value = torch.randn(3, 5, 16)
    weights = {"n.weight": torch.randn(16), "n.bias": torch.randn(16)}
    rms = make_plan().model
    centred = make_plan(model__norm="layernorm").model
    assert torch.allclose(
        reference_model.norm(rms, weights, "n", value),
        functional.rms_norm(value, (16,), weights["n.weight"], 1e-5),
    )
    assert torch.allclose(
        reference_model.norm(centred, weights, "n", value),
        functional.layer_norm(value, (16,), weights["n.weight"], weights["n.bias"], 1e-5),
        atol=1e-6,
    )


def test_rotation_by_hand():
    """Head of 4, theta 10000: pairs (0, 2) and (1, 3) turn by position x 1 and position x 0.01."""
    value = torch.tensor([1.0, 1.0, 0.0, 0.0]).view(1, 1, 1, 4).expand(1, 3, 1, 4)
    turned = reference_model.rotate(value, 10000.0, 4)
    expected = [math.cos(2.0), math.cos(0.02), math.sin(2.0), math.sin(0.02)]
    assert turned[0, 2, 0].tolist() == pytest.approx(expected, abs=1e-6)
    assert turned[0, 0, 0].tolist() == [1, 1, 0, 0]
    # Of the first half alone, one pair: what is behind it stays.
    partly = reference_model.rotate(value, 10000.0, 2)[0, 2, 0].tolist()
    expected = [math.cos(2.0) - math.sin(2.0), math.sin(2.0) + math.cos(2.0), 0.0, 0.0]
    assert partly == pytest.approx(expected, abs=1e-6)


def test_a_window_of_three_by_hand():
    hidden = reference_model.hidden_keys(5, 3)
    assert [(~row).nonzero().flatten().tolist() for row in hidden] == [
        [0],
        [0, 1],
        [0, 1, 2],
        [1, 2, 3],
        [2, 3, 4],
    ]
    assert torch.equal(reference_model.hidden_keys(5, 5), reference_model.hidden_keys(5, None))


def test_no_token_sees_the_future(make_plan):
    model = make_plan().model
    weights = reference_model.first_weights(model, 1)
    tokens = torch.arange(8).view(1, 8)
    changed = tokens.clone()
    changed[0, 5] = 40
    one, other = (reference_model.logits(model, weights, each) for each in (tokens, changed))
    assert torch.equal(one[:, :5], other[:, :5])
    assert not torch.equal(one[:, 5:], other[:, 5:])


def test_attention_is_pytorchs_with_grouped_heads(make_plan):
    """The fused weight is [q0 q1 k v] of group 0, then of group 1: 4 query, 2 key-value heads of 4."""
    model = make_plan(model__position="learned").model
    # Weights of a model's size: scores of 60 and more would blow rounding up past any useful bound.
    weight = torch.randn(32, 16) / 4
    value = torch.randn(2, 8, 16)
    at = "layers.0.self_attention"
    weights = {f"{at}.linear_qkv.weight": weight, f"{at}.linear_proj.weight": torch.eye(16)}
    mine = reference_model.attend(model, weights, 0, value)
    heads = functional.linear(value, weight).view(2, 8, 8, 4).transpose(1, 2)
    query, key, mixed = heads[:, [0, 1, 4, 5]], heads[:, [2, 6]], heads[:, [3, 7]]
    theirs = functional.scaled_dot_product_attention(query, key, mixed, is_causal=True, enable_gqa=True)
    assert torch.allclose(mine, theirs.transpose(1, 2).flatten(2), atol=1e-5)


def test_clipping_counts_only_the_steps_that_it_changed(make_plan, make_corpus):
    corpus = IndexedCorpus(make_corpus([list(range(61))]), 8, seed=7, vocab=61)
    free = reference.train(make_plan(optimizer__grad_clip=1e9), corpus)
    assert free.clipped_steps == 0
    tight = reference.train(make_plan(optimizer__grad_clip=min(free.grad_norms) / 2), corpus)
    assert tight.clipped_steps >= 1
    assert tight.grad_norms[0] == free.grad_norms[0]  # the norm is measured before clipping
    off = reference.train(make_plan(optimizer__grad_clip=0.0), corpus)
    assert off.losses == free.losses
