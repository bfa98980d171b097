"""The yardstick: the same training in plain PyTorch on one process, without any engine.

Written apart from the trainers on purpose: of them it shares the reader of the data alone, so that a mistake
in their layers, cutting, initialisation, clipping or schedule cannot hide here too. Parameters have the
global names of the trainers. `linear_qkv` holds, for each group of key-value heads in turn, the group's
query heads, then its key head, then its value head; `linear_fc1` of a SwiGLU model holds all gate rows, then
all up rows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional

from dsforge.base.errors import DsforgeError
from dsforge.plan.types import Model, Optimizer, Plan
from dsforge.records import environment
from dsforge.train.reader import IndexedCorpus

Weights = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a whole run, one entry a step; norms are of the gradient before clipping."""

    losses: tuple[float, ...]
    grad_norms: tuple[float, ...]
    clipped_steps: int
    weights: Weights


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
        wide = model.ffn_hidden * (2 if model.activation == "swiglu" else 1)
        for name, rows, columns in (
            ("self_attention.linear_qkv", queries + 2 * model.kv_heads * model.head_dim, hidden),
            ("self_attention.linear_proj", hidden, queries),
            ("mlp.linear_fc1", wide, hidden),
            ("mlp.linear_fc2", hidden, model.ffn_hidden),
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


def attend(model: Model, weights: Weights, at: str, value: torch.Tensor) -> torch.Tensor:
    """Return causal self-attention of [batch, seq, hidden], softmax in fp32."""
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
    joined = torch.einsum("bhqk,bkhd->bqhd", chances, mixed).reshape(batch, seq, -1)
    return linear(weights, f"{at}.linear_proj", joined)


def feed_forward(model: Model, weights: Weights, at: str, value: torch.Tensor) -> torch.Tensor:
    """Return GELU in its tanh form (Hendrycks and Gimpel 2016) or SwiGLU (Shazeer 2020)."""
    wide = linear(weights, f"{at}.linear_fc1", value)
    if model.activation == "swiglu":
        gate, up = wide.split(model.ffn_hidden, dim=-1)
        wide = functional.silu(gate) * up
    else:
        wide = functional.gelu(wide, approximate="tanh")
    return linear(weights, f"{at}.linear_fc2", wide)


def logits(model: Model, weights: Weights, tokens: torch.Tensor) -> torch.Tensor:
    """Return [batch, seq, vocab] of token ids [batch, seq]."""
    value = functional.embedding(tokens, weights["embedding.word.weight"])
    if model.position == "learned":
        value = value + weights["embedding.position.weight"][: tokens.shape[1]]
    for i in range(model.layers):
        at = f"layers.{i}"
        normed = norm(model, weights, f"{at}.input_layernorm", value)
        value = value + attend(model, weights, f"{at}.self_attention", normed)
        normed = norm(model, weights, f"{at}.pre_mlp_layernorm", value)
        value = value + feed_forward(model, weights, f"{at}.mlp", normed)
    value = norm(model, weights, "final_norm", value)
    return functional.linear(value, weights["embedding.word.weight" if model.tied else "head.weight"])


def rate(optimizer: Optimizer, step: int, steps: int) -> float:
    """Return the learning rate of a step counted from 0: linear warm-up, then the schedule's fall."""
    if step < optimizer.warmup_steps:
        return optimizer.lr * (step + 1) / optimizer.warmup_steps
    done = (step - optimizer.warmup_steps) / max(1, steps - optimizer.warmup_steps)
    share = {"constant": 1.0, "linear": 1.0 - done, "cosine": (1.0 + math.cos(math.pi * done)) / 2}
    return optimizer.min_lr + (optimizer.lr - optimizer.min_lr) * share[optimizer.lr_schedule]


def train(plan: Plan, corpus: IndexedCorpus) -> Outcome:
    """Train the plan's model on one process; bf16 keeps fp32 master weights and AdamW states."""
    model, options, batch = plan.model, plan.optimizer, plan.batch
    low = torch.bfloat16 if plan.train.precision == "bf16" else torch.float32
    first = {name: weight.to(low).float() for name, weight in first_weights(model, plan.train.seed).items()}
    master = {name: weight.requires_grad_() for name, weight in first.items()}
    groups = [
        {"params": [w for w in master.values() if w.dim() > 1], "weight_decay": options.weight_decay},
        {"params": [w for w in master.values() if w.dim() == 1], "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(groups, lr=options.lr, betas=options.betas, eps=options.eps)
    losses, norms, clipped = [], [], 0
    for step in range(plan.train.steps):
        total = 0.0
        sums = {name: torch.zeros_like(weight) for name, weight in master.items()}
        for start in range(0, batch.global_size, batch.micro):
            ids = range(step * batch.global_size + start, step * batch.global_size + start + batch.micro)
            samples = torch.stack([torch.from_numpy(corpus.sample(i)) for i in ids])
            weights = {name: w.detach().to(low).requires_grad_() for name, w in master.items()}
            scores = logits(model, weights, samples[:, :-1]).float()
            loss = functional.cross_entropy(scores.flatten(0, 1), samples[:, 1:].flatten())
            share = batch.micro / batch.global_size
            (loss * share).backward()
            total += loss.item() * share
            for name, weight in weights.items():
                if weight.grad is not None:
                    sums[name] += weight.grad.float()
        length = math.sqrt(sum(g.double().square().sum().item() for g in sums.values()))
        shrink = 1.0
        if options.grad_clip > 0 and length > options.grad_clip:
            clipped += 1
            shrink = options.grad_clip / (length + 1e-6)
        for name, weight in master.items():
            weight.grad = sums[name] * shrink
        for group in adam.param_groups:
            group["lr"] = rate(options, step, plan.train.steps)
        adam.step()
        losses.append(total)
        norms.append(length)
    final = {name: weight.detach().to(low) for name, weight in master.items()}
    return Outcome(tuple(losses), tuple(norms), clipped, final)


def corpus_prefix(plan: Plan) -> Path:
    """Return where the plan's data lies, from the same variables that the ranks are given."""
    if plan.data.prefix is None:
        return Path(os.environ[environment.CORPUS])
    return Path(os.environ[environment.ROOT]) / plan.data.prefix


def main() -> int:
    """Train a plan and write losses.json and params.safetensors into a folder."""
    parser = argparse.ArgumentParser(prog="python -m dsforge.train.reference")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    choice = parser.parse_args()
    plan = Plan.model_validate_json(choice.plan.read_text("utf-8"))
    try:
        corpus = IndexedCorpus(corpus_prefix(plan), plan.batch.seq_len, plan.train.seed, plan.model.vocab)
        outcome = train(plan, corpus)
    except DsforgeError as error:
        sys.stderr.write(f"error[{error.code}]: {error.message} ({error.place})\n")
        return error.exit_code
    choice.out.mkdir(parents=True, exist_ok=True)
    figures = {
        "losses": outcome.losses,
        "grad_norms": outcome.grad_norms,
        "clipped_steps": outcome.clipped_steps,
    }
    (choice.out / "losses.json").write_text(json.dumps(figures) + "\n", "utf-8")
    save_file(outcome.weights, choice.out / "params.safetensors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
