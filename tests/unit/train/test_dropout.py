"""Masks come from addresses: the published stream, the right share, one mask an address, none elsewhere."""

import math

import numpy as np
import pytest
import torch

from dsforge.train import reference, reference_model
from dsforge.train.dropout import Dropout, Site, outputs
from dsforge.train.reader import IndexedCorpus

SAMPLES = torch.tensor([5, 1_000_000_007])


def mask(
    dropout: Dropout, samples: torch.Tensor = SAMPLES, length: int = 96, width: int = 64
) -> torch.Tensor:
    return dropout.hidden(torch.ones(length, len(samples), width), samples, training=True) != 0


def binomial_bounds(trials: int, chance: float, tail: float) -> tuple[int, int]:
    """The counts beyond which, on each side, less than `tail` of a binomial lies, summed exactly."""

    def probability(count: int) -> float:
        ways = math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
        return math.exp(ways + count * math.log(chance) + (trials - count) * math.log1p(-chance))

    below, low = probability(0), 0
    while below < tail:
        low += 1
        below += probability(low)
    above, high = probability(trials), trials
    while above < tail:
        high -= 1
        above += probability(high)
    return low, high


def test_the_stream_is_splitmix64():
    """The first five numbers of seed 1234567, as the algorithm's implementations publish them."""
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert [number % 2**64 for number in outputs(1234567, torch.arange(5)).tolist()] == published


def test_binomial_bounds_by_hand():
    # Of the outcomes of four coins 1/16 have no head, 5/16 at most one.
    assert binomial_bounds(4, 0.5, 0.3) == (1, 3)
    assert binomial_bounds(4, 0.5, 0.05) == (0, 4)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("site", Site)
def test_the_share_kept_is_the_rates_and_what_is_kept_is_scaled(rate, site):
    value = torch.full((2, 3, 40, 40), 2.0)
    dropout = Dropout.at(rate, 1234, site, layer=3)
    dropped = dropout.chances(value, SAMPLES, 0)
    low, high = binomial_bounds(value.numel(), 1 - rate, 1e-4)
    assert low <= int((dropped != 0).sum()) <= high
    assert dropped.unique().tolist() == pytest.approx([0.0, 2 / (1 - rate)])


def test_every_part_of_an_address_gives_a_mask_of_its_own():
    """Two masks of rate 0.5 agree in half of their entries, within exact bounds; equal ones agree in all."""
    base = mask(Dropout.at(0.5, 7, Site.AFTER_MLP, 1))
    others = {
        "seed": mask(Dropout.at(0.5, 8, Site.AFTER_MLP, 1)),
        "site": mask(Dropout.at(0.5, 7, Site.AFTER_ATTENTION, 1)),
        "layer": mask(Dropout.at(0.5, 7, Site.AFTER_MLP, 2)),
        "swapped": mask(Dropout.at(0.5, 7, Site.EMBEDDING, 3)),
        "samples": mask(Dropout.at(0.5, 7, Site.AFTER_MLP, 1), SAMPLES + 1),
        "next row": base.roll(1, 0),
        "next channel": base.roll(1, 2),
        "other sample": base.flip(1),
    }
    low, high = binomial_bounds(base.numel(), 0.5, 1e-4)
    for name, other in others.items():
        assert low <= int((base == other).sum()) <= high, name
    assert torch.equal(base, mask(Dropout.at(0.5, 7, Site.AFTER_MLP, 1)))


def test_a_mask_does_not_depend_on_the_company_of_a_sample_nor_on_the_shard_of_a_head():
    dropout = Dropout.at(0.3, 7, Site.ATTENTION, 0)
    assert torch.equal(mask(dropout)[:, 1:], mask(dropout, SAMPLES[1:]))
    whole = dropout.chances(torch.ones(2, 6, 8, 8), SAMPLES, 0)
    shards = [dropout.chances(torch.ones(2, 2, 8, 8), SAMPLES, first) for first in (0, 2, 4)]
    assert torch.equal(torch.cat(shards, dim=1), whole)
    assert not torch.equal(shards[0], shards[1])


def test_the_reference_drops_the_same_entries(make_plan):
    rate, seed, ids = 0.1, 2**63 - 1, [3, 99]
    train = make_plan(train__dropout=rate, train__attention_dropout=rate, train__seed=seed).train
    theirs = reference_model.Dropout(train, ids)
    samples = torch.tensor(ids)
    for site in (Site.EMBEDDING, Site.AFTER_ATTENTION, Site.AFTER_MLP):
        value = torch.randn(2, 24, 16)
        mine = Dropout.at(rate, seed, site, 1).hidden(value.transpose(0, 1), samples, training=True)
        torch.testing.assert_close(mine.transpose(0, 1), theirs.hidden(value, site.value, 1))
    chances = torch.rand(2, 4, 24, 24) + 0.1
    mine = Dropout.at(rate, seed, Site.ATTENTION, 1).chances(chances, samples, 0)
    assert 0 < int((mine == 0).sum()) < chances.numel() / 5
    torch.testing.assert_close(mine, theirs.chances(chances, 1))


def test_nothing_is_dropped_outside_training_or_at_rate_0():
    value = torch.randn(4, 2, 8)
    assert Dropout.at(0.5, 7, Site.EMBEDDING).hidden(value, SAMPLES, training=False) is value
    assert Dropout.at(0.0, 7, Site.EMBEDDING).hidden(value, SAMPLES, training=True) is value


def test_gradients_pass_through_kept_entries_alone():
    value = torch.randn(16, 2, 8, requires_grad=True)
    dropped = Dropout.at(0.25, 7, Site.EMBEDDING).hidden(value, SAMPLES, training=True)
    dropped.sum().backward()
    assert torch.equal(value.grad, (dropped != 0) / 0.75)


def test_bf16_stays_bf16_and_drops_the_same_entries():
    dropout = Dropout.at(0.25, 7, Site.EMBEDDING)
    wide, low = (
        dropout.hidden(torch.ones(16, 2, 8, dtype=kind), SAMPLES, training=True)
        for kind in (torch.float32, torch.bfloat16)
    )
    assert low.dtype is torch.bfloat16
    assert torch.equal(low != 0, wide != 0)


@pytest.mark.parametrize("key", ["train__dropout", "train__attention_dropout"])
def test_the_reference_trains_with_each_dropout_and_judges_without(make_plan, make_corpus, key):
    corpus = IndexedCorpus(make_corpus([list(range(61))]), 8, seed=7, vocab=61)
    plain, dropped = make_plan(train__steps=1), make_plan(train__steps=1, **{key: 0.2})
    assert reference.train(plain, corpus).losses != reference.train(dropped, corpus).losses
    weights = reference_model.first_weights(plain.model, 7)
    tokens = torch.from_numpy(np.stack([corpus.sample(0)[:-1]]))
    with_mask = reference_model.logits(
        plain.model, weights, tokens, reference_model.Dropout(dropped.train, [0])
    )
    other_sample = reference_model.logits(
        plain.model, weights, tokens, reference_model.Dropout(dropped.train, [4])
    )
    assert not torch.equal(with_mask, reference_model.logits(plain.model, weights, tokens))
    assert not torch.equal(with_mask, other_sample)
