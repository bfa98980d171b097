"""The yardstick's model: parameters, first weights, dropout and forward pass in plain PyTorch.

Written apart from the trainers on purpose, as reference.py is. Parameters have the global names of the
trainers. `linear_qkv` holds, for each group of key-value heads in turn, the group's query heads, then its key
head, then its value head; `linear_fc1` of a gated model holds all gate rows, then all up rows. Which entries
dropout zeroes is a convention as names and first weights are: see `kept`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from dsforge.plan.types import Model, Plan, Train

Weights = dict[str, torch.Tensor]
Switched = Mapping[int, Sequence[tuple[int, int]]]
"""By layer the tokens (row, position) that go to the best expert left out, not to the last one chosen."""


@dataclass(frozen=True, slots=True)
class Routed:
    """What a layer's router made of [batch, seq] tokens: scores of all experts, numbers of those chosen."""

    layer: int
    scores: torch.Tensor
    chosen: torch.Tensor


def shapes(model: Model) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the global name and full shape of every parameter."""
    hidden, centred = model.hidden, model.norm == "layernorm"
    yield "embedding.word.weight", (model.vocab, hidden)
    if model.position == "learned":
        yield "embedding.position.weight", (model.max_positions, hidden)
    norms = {"final_norm": hidden}
    queries = model.heads * model.head_dim
    for i in range(model.layers):
        norms |= dict.fromkeys((f"layers.{i}.input_layernorm", f"layers.{i}.pre_mlp_layernorm"), hidden)
        if model.qk_norm:
            at = f"layers.{i}.self_attention"
            norms |= dict.fromkeys((f"{at}.q_layernorm", f"{at}.k_layernorm"), model.head_dim)
        for name, rows, columns in (
            ("self_attention.linear_qkv", queries + 2 * model.kv_heads * model.head_dim, hidden),
            ("self_attention.linear_proj", hidden, queries),
            *mlp_shapes(model, i),
        ):
            yield f"layers.{i}.{name}.weight", (rows, columns)
            if model.qkv_bias if name.endswith("linear_qkv") else model.linear_bias:
                yield f"layers.{i}.{name}.bias", (rows,)
    for name, width in norms.items():
        yield f"{name}.weight", (width,)
        if centred:
            yield f"{name}.bias", (width,)
    if not model.tied:
        yield "head.weight", (model.vocab, hidden)


def mlp_shapes(model: Model, layer: int) -> Iterator[tuple[str, int, int]]:
    """Yield name, rows and columns of the matrices of one MLP, or of a router and its experts."""
    experts, width, places = model.experts, model.ffn_hidden, ["mlp"]
    if experts is not None and layer not in experts.dense_layers:
        yield "mlp.router", experts.count, model.hidden
        width, places = experts.ffn_hidden, [f"mlp.experts.{number}" for number in range(experts.count)]
    for place in places:
        yield f"{place}.linear_fc1", width * (2 if model.gated else 1), model.hidden
        yield f"{place}.linear_fc2", model.hidden, width


def first_weights(model: Model, seed: int) -> Weights:
    """Return fp32 weights, each from (seed, name) alone: biases 0, norms scale by 1, matrices normal."""
    weights: Weights = {}
    for name, shape in shapes(model):
        if name.endswith(".bias"):
            weights[name] = torch.zeros(shape)
        elif "norm" in name:
            weights[name] = torch.zeros(shape) if model.unit_offset_norm else torch.ones(shape)
        else:
            into_residual = name.endswith(("linear_proj.weight", "linear_fc2.weight"))
            deviation = model.init_std / (math.sqrt(2 * model.layers) if into_residual else 1.0)
            key = hashlib.sha256(f"{seed}:{name}".encode()).digest()[:8]
            generator = torch.Generator().manual_seed(int.from_bytes(key, "little") >> 1)
            weights[name] = torch.empty(shape).normal_(0.0, deviation, generator=generator)
    return weights


def kept(rate: float, seed: int, *address: NDArray[np.uint64]) -> torch.Tensor:
    """Return where dropout keeps: the parts of an address, counted from 0, span the result by broadcasting.

    An address begins with site (0 embedding, 1 attention probabilities, 2 after attention, 3 after the MLP),
    layer and sample id; position and channel follow, or head, query and key. Starting from the seed, each
    part n replaces the state by output n of SplitMix64 (Steele, Lea and Flood 2014) from that state; an entry
    is kept where the last one, read as a signed number, is not below rate x 2^64 - 2^63.
    """
    state = np.full((1,) * max(part.ndim for part in address), seed, np.uint64)
    for part in address:
        state = state + (part + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return torch.from_numpy(state.view(np.int64) >= int(rate * 2**64) - 2**63)


@dataclass(frozen=True, slots=True)
class Dropout:
    """The dropout of one micro-batch in training; `samples` are its ids, in order."""

    train: Train
    samples: Sequence[int]

    def _drop(self, value: torch.Tensor, rate: float, site: int, layer: int) -> torch.Tensor:
        parts = [np.array(self.samples), *(np.arange(size) for size in value.shape[1:])]
        grid = np.meshgrid(*parts, indexing="ij", sparse=True)
        place = [np.full((1,) * value.dim(), number) for number in (site, layer)]
        mask = kept(rate, self.train.seed, *(part.astype(np.uint64) for part in (*place, *grid)))
        return value * mask / (1 - rate)

    def hidden(self, value: torch.Tensor, site: int, layer: int = 0) -> torch.Tensor:
        """Return [batch, seq, hidden] dropped."""
        rate = self.train.dropout
        return self._drop(value, rate, site, layer) if rate else value

    def chances(self, value: torch.Tensor, layer: int) -> torch.Tensor:
        """Return attention probabilities [batch, heads, query, key] dropped."""
        rate = self.train.attention_dropout
        return self._drop(value, rate, 1, layer) if rate else value


def norm(model: Model, weights: Weights, name: str, value: torch.Tensor) -> torch.Tensor:
    """Return LayerNorm (Ba et al. 2016) or RMSNorm (Zhang and Sennrich 2019) over the last dimension."""
    wide = value.float()
    if model.norm == "layernorm":
        wide = wide - wide.mean(-1, keepdim=True)
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + model.norm_eps)
    scaled = wide * (weights[f"{name}.weight"].float() + (1.0 if model.unit_offset_norm else 0.0))
    if model.norm == "layernorm":
        scaled = scaled + weights[f"{name}.bias"].float()
    return scaled.to(value.dtype)


def linear(weights: Weights, name: str, value: torch.Tensor) -> torch.Tensor:
    """Return value times the transposed weight, plus the bias where there is one."""
    return functional.linear(value, weights[f"{name}.weight"], weights.get(f"{name}.bias"))


def rotate(value: torch.Tensor, theta: float, width: int) -> torch.Tensor:
    """Return [batch, seq, heads, head_dim] turned by position (Su et al. 2021), halves as pairs.

    The first `width` channels of a head alone, the others as they are.
    """
    half = width // 2
    speed = theta ** (-torch.arange(half, dtype=torch.float32) / half)
    turns = torch.outer(torch.arange(value.shape[1], dtype=torch.float32), speed)[None, :, None, :]
    cosine, sine = turns.cos().to(value.dtype), turns.sin().to(value.dtype)
    left, right, still = value[..., :half], value[..., half:width], value[..., width:]
    return torch.cat((left * cosine - right * sine, right * cosine + left * sine, still), dim=-1)


def hidden_keys(seq: int, window: int | None) -> torch.Tensor:
    """Return [query, key], true for keys ahead, and where there is a window for those it has left behind."""
    everything = torch.ones(seq, seq, dtype=torch.bool)
    ahead = everything.triu(1)
    return ahead if window is None else ahead | everything.tril(-window)


def attend(
    model: Model, weights: Weights, layer: int, value: torch.Tensor, dropout: Dropout | None = None
) -> torch.Tensor:
    """Return causal self-attention of [batch, seq, hidden], softmax in fp32."""
    at = f"layers.{layer}.self_attention"
    batch, seq, _ = value.shape
    per_group = model.heads // model.kv_heads
    fused = linear(weights, f"{at}.linear_qkv", value)
    fused = fused.view(batch, seq, model.kv_heads, per_group + 2, model.head_dim)
    query = fused[..., :per_group, :].reshape(batch, seq, model.heads, model.head_dim)
    key, mixed = fused[..., per_group, :], fused[..., per_group + 1, :]
    if model.qk_norm:
        query = norm(model, weights, f"{at}.q_layernorm", query)
        key = norm(model, weights, f"{at}.k_layernorm", key)
    if model.position == "rope":
        query, key = (rotate(part, model.rope_theta, model.rotary_dim) for part in (query, key))
    key, mixed = (part.repeat_interleave(per_group, dim=2) for part in (key, mixed))
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key).float() / math.sqrt(model.head_dim)
    hidden = hidden_keys(seq, model.window_of(layer))
    chances = scores.masked_fill(hidden, -math.inf).softmax(-1).to(value.dtype)
    if dropout is not None:
        chances = dropout.chances(chances, layer)
    joined = torch.einsum("bhqk,bkhd->bqhd", chances, mixed).reshape(batch, seq, -1)
    return linear(weights, f"{at}.linear_proj", joined)


def activated(model: Model, value: torch.Tensor) -> torch.Tensor:
    """Return SiLU, ReLU, or GELU (Hendrycks and Gimpel 2016), exact or in its tanh form."""
    if model.activation == "swiglu":
        return functional.silu(value)
    if model.activation == "relu":
        return functional.relu(value)
    return functional.gelu(value, approximate="none" if model.activation == "gelu-erf" else "tanh")


def feed_forward(model: Model, weights: Weights, at: str, value: torch.Tensor) -> torch.Tensor:
    """Return what the MLP makes of [batch, seq, hidden]; gated ones are those of Shazeer 2020."""
    wide = linear(weights, f"{at}.linear_fc1", value)
    if model.gated:
        gate, up = wide.chunk(2, dim=-1)
        wide = activated(model, gate) * up
    else:
        wide = activated(model, wide)
    return linear(weights, f"{at}.linear_fc2", wide)


def choose(scores: torch.Tensor, active: int, switched: Sequence[tuple[int, int]] = ()) -> torch.Tensor:
    """Return the numbers [batch, seq, active] of the experts with the largest shares, in fp32."""
    order = scores.float().softmax(-1).argsort(dim=-1, descending=True, stable=True)
    for row, position in switched:
        order[row, position, active - 1 : active + 1] = order[row, position, active - 1 : active + 1].flip(0)
    return order[..., :active]


def mix(
    model: Model, weights: Weights, layer: int, value: torch.Tensor, switched: Switched | None = None
) -> tuple[torch.Tensor, Routed | None]:
    """Return the MLP's output of [batch, seq, hidden] and, of a layer with experts, where its tokens went.

    The best experts of a token work on it, each counted by its share of the softmax in fp32 (Shazeer et
    al. 2017; normalised as Jiang et al. 2024 do); here all work, and those not chosen count nothing.
    """
    experts, at = model.experts, f"layers.{layer}.mlp"
    if experts is None or f"{at}.router.weight" not in weights:
        return feed_forward(model, weights, at, value), None
    scores = linear(weights, f"{at}.router", value)
    chosen = choose(scores, experts.active, (switched or {}).get(layer, ()))
    shares = scores.float().softmax(-1).gather(-1, chosen)
    if experts.normalised:
        shares = shares / shares.sum(-1, keepdim=True)
    mixed = torch.zeros_like(value)
    for number in range(experts.count):
        share = (shares * (chosen == number)).sum(-1, keepdim=True).to(value.dtype)
        mixed = mixed + share * feed_forward(model, weights, f"{at}.experts.{number}", value)
    return mixed, Routed(layer, scores, chosen)


def imbalance(plan: Plan, routed: Sequence[Routed]) -> torch.Tensor:
    """Return the balance loss of where tokens went, without its coefficient; see `Train`."""
    assert plan.model.experts is not None
    count, active = plan.model.experts.count, plan.model.experts.active
    chances = [each.scores.float().softmax(-1).flatten(0, -2) for each in routed]
    choices = [functional.one_hot(each.chosen, count).flatten(0, -3).sum(1).float() for each in routed]
    if plan.train.balance_over == "model":
        return count * (torch.cat(choices).mean(0) * torch.cat(chances).mean(0)).sum()
    layers = zip(choices, chances, strict=True)
    return torch.stack([(count / active) * (f.mean(0) * p.mean(0)).sum() for f, p in layers]).sum()


def logits(
    model: Model, weights: Weights, tokens: torch.Tensor, dropout: Dropout | None = None
) -> torch.Tensor:
    """Return [batch, seq, vocab] of token ids [batch, seq]; without dropout unless it is given."""
    return forward(model, weights, tokens, dropout)[0]


def forward(
    model: Model,
    weights: Weights,
    tokens: torch.Tensor,
    dropout: Dropout | None = None,
    switched: Switched | None = None,
) -> tuple[torch.Tensor, list[Routed]]:
    """Return `logits`, and where the tokens went in each layer with experts, in order."""
    routed: list[Routed] = []
    value = functional.embedding(tokens, weights["embedding.word.weight"])
    if model.scaled_embedding:
        value = value * torch.tensor(math.sqrt(model.hidden)).to(value.dtype)
    if model.position == "learned":
        value = value + weights["embedding.position.weight"][: tokens.shape[1]]
    if dropout is not None:
        value = dropout.hidden(value, 0)
    for i in range(model.layers):
        entering = value
        normed = norm(model, weights, f"layers.{i}.input_layernorm", value)
        mixed = attend(model, weights, i, normed, dropout)
        value = value + (mixed if dropout is None else dropout.hidden(mixed, 2, i))
        read = entering if model.parallel_residual else value
        normed = norm(model, weights, f"layers.{i}.pre_mlp_layernorm", read)
        mixed, went = mix(model, weights, i, normed, switched)
        if went is not None:
            routed.append(went)
        value = value + (mixed if dropout is None else dropout.hidden(mixed, 3, i))
    value = norm(model, weights, "final_norm", value)
    head = weights["embedding.word.weight" if model.tied else "head.weight"]
    return functional.linear(value, head), routed
