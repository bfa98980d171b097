"""The yardstick: the same training in plain PyTorch on one process, without any engine.

Written apart from the trainers on purpose: of them it shares the samples alone, so that a mistake
in their layers, cutting, initialisation, clipping or schedule cannot hide here too. Parameters have the
global names of the trainers. `linear_qkv` holds, for each group of key-value heads in turn, the group's
query heads, then its key head, then its value head; `linear_fc1` of a SwiGLU model holds all gate rows, then
all up rows. Which entries dropout zeroes is a convention as names and first weights are: see `kept`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch.nn import functional

from dsforge.base.errors import DsforgeError
from dsforge.plan.types import Model, Optimizer, Plan, Train
from dsforge.records import environment
from dsforge.train.samples import Samples, find_sources, training_samples, validation_samples

Weights = dict[str, torch.Tensor]
_FP16_LOSS_SCALE = 2.0**16


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a whole run, one entry a step; norms are of the gradient before clipping."""

    losses: tuple[float, ...]
    grad_norms: tuple[float, ...]
    clipped_steps: int
    weights: Weights
    validation_losses: dict[int, float]
    """By the number of steps done."""


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
        yield f"{place}.linear_fc1", width * (2 if model.activation == "swiglu" else 1), model.hidden
        yield f"{place}.linear_fc2", model.hidden, width


def first_weights(model: Model, seed: int) -> Weights:
    """Return fp32 weights, each from (seed, name) alone: biases 0, norms 1, matrices normal."""
    weights: Weights = {}
    for name, shape in shapes(model):
        if name.endswith(".bias"):
            weights[name] = torch.zeros(shape)
        elif "norm" in name:
            weights[name] = torch.ones(shape)
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
    scaled = wide * weights[f"{name}.weight"].float()
    if model.norm == "layernorm":
        scaled = scaled + weights[f"{name}.bias"].float()
    return scaled.to(value.dtype)


def linear(weights: Weights, name: str, value: torch.Tensor) -> torch.Tensor:
    """Return value times the transposed weight, plus the bias where there is one."""
    return functional.linear(value, weights[f"{name}.weight"], weights.get(f"{name}.bias"))


def rotate(value: torch.Tensor, theta: float) -> torch.Tensor:
    """Return [batch, seq, heads, head_dim] turned by position (Su et al. 2021), halves as pairs."""
    half = value.shape[-1] // 2
    speed = theta ** (-torch.arange(half, dtype=torch.float32) / half)
    turns = torch.outer(torch.arange(value.shape[1], dtype=torch.float32), speed)[None, :, None, :]
    cosine, sine = turns.cos().to(value.dtype), turns.sin().to(value.dtype)
    left, right = value[..., :half], value[..., half:]
    return torch.cat((left * cosine - right * sine, right * cosine + left * sine), dim=-1)


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
        query, key = rotate(query, model.rope_theta), rotate(key, model.rope_theta)
    key, mixed = (part.repeat_interleave(per_group, dim=2) for part in (key, mixed))
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key).float() / math.sqrt(model.head_dim)
    future = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    chances = scores.masked_fill(future, -math.inf).softmax(-1).to(value.dtype)
    if dropout is not None:
        chances = dropout.chances(chances, layer)
    joined = torch.einsum("bhqk,bkhd->bqhd", chances, mixed).reshape(batch, seq, -1)
    return linear(weights, f"{at}.linear_proj", joined)


def feed_forward(model: Model, weights: Weights, at: str, value: torch.Tensor) -> torch.Tensor:
    """Return GELU in its tanh form (Hendrycks and Gimpel 2016) or SwiGLU (Shazeer 2020)."""
    wide = linear(weights, f"{at}.linear_fc1", value)
    if model.activation == "swiglu":
        gate, up = wide.chunk(2, dim=-1)
        wide = functional.silu(gate) * up
    else:
        wide = functional.gelu(wide, approximate="tanh")
    return linear(weights, f"{at}.linear_fc2", wide)


def mix(
    model: Model, weights: Weights, at: str, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the MLP's output and, of a layer with experts, the router's scores [batch, seq, experts].

    The best experts of a token work on it, each counted by its share of the softmax in fp32 (Shazeer et
    al. 2017; normalised as Jiang et al. 2024 do); here all work, and those not chosen count nothing.
    """
    experts = model.experts
    if experts is None or f"{at}.router.weight" not in weights:
        return feed_forward(model, weights, at, value), None
    scores = linear(weights, f"{at}.router", value)
    shares, chosen = scores.float().softmax(-1).topk(experts.active)
    if experts.normalised:
        shares = shares / shares.sum(-1, keepdim=True)
    mixed = torch.zeros_like(value)
    for number in range(experts.count):
        share = (shares * (chosen == number)).sum(-1, keepdim=True).to(value.dtype)
        mixed = mixed + share * feed_forward(model, weights, f"{at}.experts.{number}", value)
    return mixed, scores


def imbalance(plan: Plan, routed: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the balance loss of the routers' scores, without its coefficient; see `Train`."""
    assert plan.model.experts is not None
    count, active = plan.model.experts.count, plan.model.experts.active
    chances = [scores.float().softmax(-1).flatten(0, -2) for scores in routed]
    choices = [functional.one_hot(each.topk(active).indices, count).sum(1).float() for each in chances]
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
    model: Model, weights: Weights, tokens: torch.Tensor, dropout: Dropout | None = None
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return `logits`, and the routers' scores of the layers with experts, in order."""
    routed = []
    value = functional.embedding(tokens, weights["embedding.word.weight"])
    if model.position == "learned":
        value = value + weights["embedding.position.weight"][: tokens.shape[1]]
    if dropout is not None:
        value = dropout.hidden(value, 0)
    for i in range(model.layers):
        normed = norm(model, weights, f"layers.{i}.input_layernorm", value)
        mixed = attend(model, weights, i, normed, dropout)
        value = value + (mixed if dropout is None else dropout.hidden(mixed, 2, i))
        normed = norm(model, weights, f"layers.{i}.pre_mlp_layernorm", value)
        mixed, scores = mix(model, weights, f"layers.{i}.mlp", normed)
        if scores is not None:
            routed.append(scores)
        value = value + (mixed if dropout is None else dropout.hidden(mixed, 3, i))
    value = norm(model, weights, "final_norm", value)
    head = weights["embedding.word.weight" if model.tied else "head.weight"]
    return functional.linear(value, head), routed


def rate(optimizer: Optimizer, step: int, steps: int) -> float:
    """Return the learning rate of a step counted from 0: linear warm-up, then the schedule's fall."""
    if step < optimizer.warmup_steps:
        return optimizer.lr * (step + 1) / optimizer.warmup_steps
    done = (step - optimizer.warmup_steps) / max(1, steps - optimizer.warmup_steps)
    share = {"constant": 1.0, "linear": 1.0 - done, "cosine": (1.0 + math.cos(math.pi * done)) / 2}
    return optimizer.min_lr + (optimizer.lr - optimizer.min_lr) * share[optimizer.lr_schedule]


class Lion(torch.optim.Optimizer):
    """Lion (Chen et al. 2023, algorithm 2)."""

    @torch.no_grad()
    def step(self, _closure: None = None) -> None:
        """Move each weight by the rate along the sign of gradient and momentum, and shrink it."""
        for group in self.param_groups:
            first, second = group["betas"]
            for weight in group["params"]:
                momentum = self.state[weight].get("momentum", torch.zeros_like(weight))
                update = (first * momentum + (1 - first) * weight.grad).sign()
                weight.sub_(group["lr"] * (update + group["weight_decay"] * weight))
                self.state[weight]["momentum"] = second * momentum + (1 - second) * weight.grad


def updater(groups: list[dict[str, Any]], options: Optimizer) -> torch.optim.Optimizer:
    """Return the optimizer of groups of weights."""
    if options.type == "sgd":
        return torch.optim.SGD(groups, lr=options.lr, momentum=options.momentum)
    if options.type == "lion":
        return Lion(groups, {"lr": options.lr, "betas": options.betas})
    return torch.optim.AdamW(groups, lr=options.lr, betas=options.betas, eps=options.eps)


def validate(plan: Plan, weights: Weights, valid: Samples) -> float:
    """Return the mean token loss over the plan's validation samples."""
    total = 0.0
    for i in range(plan.train.eval_samples):
        sample = torch.from_numpy(valid.sample(i))
        scores = logits(plan.model, weights, sample[None, :-1]).float()
        total += functional.cross_entropy(scores[0], sample[1:]).item()
    return total / plan.train.eval_samples


def train(plan: Plan, corpus: Samples, valid: Samples | None = None) -> Outcome:
    """Train the plan's model on one process; in 16 bits with fp32 master weights, sums and optimizer states.

    With `valid` it is validated as often as the plan says.
    """
    model, options, batch = plan.model, plan.optimizer, plan.batch
    low = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(plan.train.precision, torch.float32)
    # Without it small gradients would vanish in fp16.
    scale = _FP16_LOSS_SCALE if low is torch.float16 else 1.0
    first = {name: weight.to(low).float() for name, weight in first_weights(model, plan.train.seed).items()}
    master = {name: weight.requires_grad_() for name, weight in first.items()}
    groups = [
        {"params": [w for w in master.values() if w.dim() > 1], "weight_decay": options.weight_decay},
        {"params": [w for w in master.values() if w.dim() == 1], "weight_decay": 0.0},
    ]
    updating = updater(groups, options)
    losses, norms, clipped = [], [], 0
    validation: dict[int, float] = {}
    for step in range(plan.train.steps):
        total = 0.0
        sums = {name: torch.zeros_like(weight) for name, weight in master.items()}
        for start in range(0, batch.global_size, batch.micro):
            ids = range(step * batch.global_size + start, step * batch.global_size + start + batch.micro)
            samples = torch.stack([torch.from_numpy(corpus.sample(i)) for i in ids])
            weights = {name: w.detach().to(low).requires_grad_() for name, w in master.items()}
            scores, routed = forward(model, weights, samples[:, :-1], Dropout(plan.train, ids))
            loss = functional.cross_entropy(scores.float().flatten(0, 1), samples[:, 1:].flatten())
            share = batch.micro / batch.global_size
            balance = plan.train.balance_loss * imbalance(plan, routed) if plan.train.balance_loss else 0.0
            ((loss + balance) * share * scale).backward()
            total += loss.item() * share
            for name, weight in weights.items():
                if weight.grad is not None:
                    sums[name] += weight.grad.float() / scale
        length = math.sqrt(sum(g.double().square().sum().item() for g in sums.values()))
        shrink = 1.0
        if options.grad_clip > 0 and length > options.grad_clip:
            clipped += 1
            shrink = options.grad_clip / (length + 1e-6)
        for name, weight in master.items():
            weight.grad = sums[name] * shrink
        for group in updating.param_groups:
            group["lr"] = rate(options, step, plan.train.steps)
        updating.step()
        losses.append(total)
        norms.append(length)
        done = step + 1
        if valid is not None and (done % plan.train.eval_every == 0 or done == plan.train.steps):
            with torch.no_grad():
                validation[done] = validate(plan, {name: w.to(low) for name, w in master.items()}, valid)
    final = {name: weight.detach().to(low) for name, weight in master.items()}
    return Outcome(tuple(losses), tuple(norms), clipped, final, validation)


def main() -> int:
    """Train a plan and write losses.json and params.safetensors into a folder.

    The data are found by the same variables that the ranks are given.
    """
    parser = argparse.ArgumentParser(prog="python -m dsforge.train.reference")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    choice = parser.parse_args()
    plan = Plan.model_validate_json(choice.plan.read_text("utf-8"))
    try:
        root, builtin = (Path(os.environ.get(name, "")) for name in (environment.ROOT, environment.CORPUS))
        sources = find_sources(plan, root, builtin)
        valid = validation_samples(plan, sources) if plan.train.eval_every else None
        outcome = train(plan, training_samples(plan, sources), valid)
    except DsforgeError as error:
        sys.stderr.write(error.told())
        return error.exit_code
    choice.out.mkdir(parents=True, exist_ok=True)
    figures = {
        "losses": outcome.losses,
        "grad_norms": outcome.grad_norms,
        "clipped_steps": outcome.clipped_steps,
        "validation_losses": outcome.validation_losses,
    }
    (choice.out / "losses.json").write_text(json.dumps(figures) + "\n", "utf-8")
    save_file(outcome.weights, choice.out / "params.safetensors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
