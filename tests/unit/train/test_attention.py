"""Attention of one shard: with dropout it is the reference's, also when it is computed again later."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from dsforge.train.dropout import Dropout, Site
from dsforge.train.rows import Rows

GROUPED = SimpleNamespace(num_attention_heads=4, num_query_groups=2)


def attention(
    rate: float, *, window: int | None = None, recompute: bool = False, shard: int = 0, shards: int = 1
):
    from dsforge.train.attention import CausalAttention, Running

    running = Running(torch.tensor([3, 8]))
    place = SimpleNamespace(tp=SimpleNamespace(rank=lambda: shard, size=lambda: shards), cp=None)
    dropout = Dropout.at(rate, 7, Site.ATTENTION, 1)
    options = {"dropout": dropout, "running": running, "rows": Rows()}
    options |= {"recompute": recompute, "pg_collection": place}
    return CausalAttention(GROUPED, window=window, **options)


def inputs() -> list[torch.Tensor]:
    """Query, key and value [s, b, heads, head_dim], two query heads to a key head."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((16, 2, 4, 8), (16, 2, 2, 8), (16, 2, 2, 8))
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


def test_with_dropout_it_is_softmax_masked_and_mixed_and_in_evaluation_pytorchs_own():
    query, key, value = (part.detach().permute(1, 2, 0, 3) for part in inputs())
    scores = query @ key.repeat_interleave(2, 1).mT / 8**0.5
    chances = scores.masked_fill(torch.ones(16, 16).triu(1) > 0, -torch.inf).softmax(-1)
    kept = Dropout.at(0.5, 7, Site.ATTENTION, 1).chances(torch.ones_like(chances), torch.tensor([3, 8]), 0)
    expected = (chances * kept) @ value.repeat_interleave(2, 1)
    layer = attention(0.5)
    found = layer(*inputs()).view(16, 2, 4, 8).permute(1, 2, 0, 3)
    torch.testing.assert_close(found, expected)
    plain = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    judged = layer.eval()(*inputs()).view(16, 2, 4, 8).permute(1, 2, 0, 3)
    torch.testing.assert_close(judged, plain)
    assert not torch.allclose(found, plain, atol=0.1)


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_behind_the_window_nothing_is_seen(rate: float):
    """A change of the first tokens reaches the last one inside the window, and no token behind it."""
    layer, parts = attention(rate, window=5), inputs()
    one = layer(*parts)
    with torch.no_grad():
        changed = [part.clone() for part in parts]
        for part in changed[1:]:
            part[:3] += 1.0
    differs = (layer(*changed) - one).abs().amax(dim=(1, 2)) > 0
    # Token 6 looks back to token 2.
    assert differs.tolist() == [True] * 7 + [False] * 9
    wide, full = (attention(rate, window=window)(*parts) for window in (16, None))
    assert torch.equal(wide, full)


def test_a_shard_drops_what_the_whole_drops_of_its_heads():
    query, key, value = inputs()
    whole = attention(0.5)(query, key, value).view(16, 2, 4, 8)
    second = attention(0.5, shard=1, shards=2)(query[:, :, 2:], key[:, :, 1:], value[:, :, 1:])
    torch.testing.assert_close(second.view(16, 2, 2, 8), whole[:, :, 2:])


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_computed_again_while_the_layer_runs_on_other_samples_it_drops_the_same(rate):
    """On a pipeline the next micro-batches go forward before the first comes back."""
    gradients = []
    for recompute in (False, True):
        layer, parts = attention(rate, recompute=recompute), inputs()
        mixed = layer(*parts)
        layer.running.samples = torch.tensor([100, 101])
        mixed.square().sum().backward()
        gradients.append([part.grad for part in parts])
    assert all(torch.equal(kept, again) for kept, again in zip(*gradients, strict=True))
