"""Measures the pieces of a model on this machine; run as a process, on one rank.

`python -m dsforge.train.layer_times PLAN CONDITIONS` reads a plan, and from a second file what its times
are of, and prints the record as JSON. The pieces are those of the trainer's stages, each whole: what TP
would split, it would split alike.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
import torch.distributed as dist

from dsforge.base.canonical import loads
from dsforge.base.errors import DsforgeError
from dsforge.plan.types import Plan
from dsforge.records.layer_times import LayerTimes, PieceTime
from dsforge.train import cpu_support, forge, initial
from dsforge.train.precision import DTYPES

REPEATS = 15
_WARM_UP = 3

Piece = Callable[[], torch.Tensor]
"""Runs forward; gradients flow back from what it returns to weights and to what it received."""


def measure(
    plan: Plan, conditions: dict[str, Any], device: torch.device, repeats: int = REPEATS
) -> LayerTimes:
    """Return the times of a plan's pieces; a process group of one rank must stand.

    The pieces take turns, so that a machine that is slow for a while is slow for all of them.
    """
    parts = pieces(plan, device)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in parts}
    for turn in range(_WARM_UP + repeats):
        for name, piece in parts.items():
            seconds = _time(piece, device)
            if turn >= _WARM_UP:
                taken[name].append(seconds)
    return LayerTimes(
        of=conditions,
        device=_device_name(device),
        trainer=plan.trainer,
        micro=plan.batch.micro,
        repeats=repeats,
        **{name: _summed_up(seconds) for name, seconds in taken.items()},
    )


def pieces(plan: Plan, device: torch.device) -> dict[str, Piece]:
    """Return the embedding, one layer, and the head with its loss, with the first weights of a run."""
    from dsforge.train.layers import Layer
    from dsforge.train.loss import token_loss
    from dsforge.train.model import WholeModel, piece_specs
    from dsforge.train.named import global_parameters
    from dsforge.train.parameters import model_parameters
    from dsforge.train.recompute import block_size, run

    shape, batch, train = plan.model, plan.batch, plan.train
    small = plan.model_copy(update={"model": shape.model_copy(update={"layers": 1})})
    groups = forge.make_groups(plan.layout)
    loss = token_loss(shape.vocab, shape.padded_vocab, 1, 0)
    model = WholeModel(piece_specs(small, groups), loss, block_size(train))
    specs = {spec.name: spec for spec in model_parameters(small.model)}
    initial.fill(global_parameters(model, specs), specs, small, 0)
    model.to(device=device, dtype=DTYPES[train.precision])
    row = list(model.pieces)
    at = next(index for index, piece in enumerate(row) if isinstance(piece, Layer))
    embeddings, layers, ends = row[:at], row[at : at + 1], row[at + 1 :]
    generator = torch.Generator().manual_seed(train.seed)
    size = (batch.micro, batch.seq_len)
    tokens, labels = (torch.randint(shape.vocab, size, generator=generator).to(device) for _ in range(2))
    samples = torch.arange(batch.micro, device=device)
    with torch.no_grad():
        received = run(embeddings, (tokens, samples), 0)[0]
    received = received.detach().requires_grad_()

    def head() -> torch.Tensor:
        value = run(ends, (received, samples), 0)
        return loss(row[0].logits(value) if model.tied else value, labels)

    return {
        "embedding": lambda: run(embeddings, (tokens, samples), 0)[0],
        "layer": lambda: run(layers, (received, samples), model.block)[0],
        "head": head,
    }


def _time(piece: Piece, device: torch.device) -> tuple[float, float]:
    """Return the seconds of a piece's forward and of its backward."""
    began = _now(device)
    made = piece()
    forward = _now(device)
    gradient = torch.ones_like(made)
    turned = _now(device)
    made.backward(gradient)
    return forward - began, _now(device) - turned


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _summed_up(seconds: Sequence[tuple[float, float]]) -> PieceTime:
    sums = [forward + backward for forward, backward in seconds]
    low, _, high = quantiles(sums, n=4)
    forwards, backwards = zip(*seconds, strict=True)
    return PieceTime(median(forwards), median(backwards), (high - low) / median(sums))


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


def main(arguments: Sequence[str]) -> int:
    """Answer on stdout; what the libraries say while they load goes to stderr."""
    parser = argparse.ArgumentParser(prog="python -m dsforge.train.layer_times")
    parser.add_argument("plan", type=Path)
    parser.add_argument("conditions", type=Path)
    files = parser.parse_args(arguments)
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    plan = Plan.model_validate_json(files.plan.read_text("utf-8"))
    conditions = loads(files.conditions.read_text("utf-8"))
    with answer, contextlib.redirect_stdout(sys.stderr):
        try:
            device = cpu_support.choose_device(plan.accelerator, 0)
        except DsforgeError as error:
            sys.stderr.write(error.told())
            return error.exit_code
        forge.import_libraries(device)
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        answer.write(measure(plan, conditions, device).to_json())
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
