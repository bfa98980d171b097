"""The yardstick: the same training in plain PyTorch on one process, without any engine.

Written apart from the trainers on purpose: of them it shares the samples alone, so that a mistake
in their layers, cutting, initialisation, clipping or schedule cannot hide here too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch.nn import functional

from dsforge.base.errors import DsforgeError
from dsforge.plan.types import Optimizer, Plan
from dsforge.records import environment
from dsforge.records.close_calls import CloseCall
from dsforge.records.typed import build
from dsforge.train.reference_calls import close_calls, switched
from dsforge.train.reference_model import Dropout, Weights, first_weights, forward, imbalance
from dsforge.train.samples import Samples, find_sources, training_samples, validation_samples

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
    close_calls: tuple[CloseCall, ...]
    """In fp32; in 16 bits rounding chooses in every step, and the tolerance is made for it."""


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


def validate(
    plan: Plan, weights: Weights, valid: Samples, step: int, other: Sequence[CloseCall]
) -> tuple[float, list[CloseCall]]:
    """Return the mean token loss over the plan's validation samples, and the close calls."""
    total, calls = 0.0, []
    for i in range(plan.train.eval_samples):
        sample = torch.from_numpy(valid.sample(i))
        way = switched(other, [i], step, validation=True)
        scores, routed = forward(plan.model, weights, sample[None, :-1], switched=way)
        total += functional.cross_entropy(scores[0].float(), sample[1:]).item()
        calls += close_calls(plan.model, routed, [i], step, validation=True)
    return total / plan.train.eval_samples, calls


def train(
    plan: Plan, corpus: Samples, valid: Samples | None = None, other: Sequence[CloseCall] = ()
) -> Outcome:
    """Train the plan's model on one process; in 16 bits with fp32 master weights, sums and optimizer states.

    With `valid` it is validated as often as the plan says. The calls of `other` are decided the other way.
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
    calls: list[CloseCall] = []
    for step in range(plan.train.steps):
        total = 0.0
        sums = {name: torch.zeros_like(weight) for name, weight in master.items()}
        for start in range(0, batch.global_size, batch.micro):
            ids = range(step * batch.global_size + start, step * batch.global_size + start + batch.micro)
            samples = torch.stack([torch.from_numpy(corpus.sample(i)) for i in ids])
            weights = {name: w.detach().to(low).requires_grad_() for name, w in master.items()}
            way = switched(other, ids, step + 1)
            scores, routed = forward(model, weights, samples[:, :-1], Dropout(plan.train, ids), way)
            calls += close_calls(model, routed, ids, step + 1)
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
                now = {name: w.to(low) for name, w in master.items()}
                validation[done], more = validate(plan, now, valid, done, other)
            calls += more
    final = {name: weight.detach().to(low) for name, weight in master.items()}
    close = tuple(calls) if low is torch.float32 else ()
    return Outcome(tuple(losses), tuple(norms), clipped, final, validation, close)


def main() -> int:
    """Train a plan and write losses.json and params.safetensors into a folder.

    The data are found by the same variables that the ranks are given.
    """
    parser = argparse.ArgumentParser(prog="python -m dsforge.train.reference")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--other", type=json.loads, default=[], help="close calls to decide the other way")
    choice = parser.parse_args()
    plan = Plan.model_validate_json(choice.plan.read_text("utf-8"))
    try:
        root, builtin = (Path(os.environ.get(name, "")) for name in (environment.ROOT, environment.CORPUS))
        sources = find_sources(plan, root, builtin)
        valid = validation_samples(plan, sources) if plan.train.eval_every else None
        other = [build(CloseCall, call) for call in choice.other]
        outcome = train(plan, training_samples(plan, sources), valid, other)
    except DsforgeError as error:
        sys.stderr.write(error.told())
        return error.exit_code
    choice.out.mkdir(parents=True, exist_ok=True)
    figures = {
        "losses": outcome.losses,
        "grad_norms": outcome.grad_norms,
        "clipped_steps": outcome.clipped_steps,
        "validation_losses": outcome.validation_losses,
        "close_calls": [asdict(call) for call in outcome.close_calls],
    }
    (choice.out / "losses.json").write_text(json.dumps(figures) + "\n", "utf-8")
    save_file(outcome.weights, choice.out / "params.safetensors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
