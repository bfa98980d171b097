"""Two ranks, processes of this machine, that share a sequence out between them and attend to all of it."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from dsforge.train.dropout import Dropout, Site
from dsforge.train.rows import Rows

PARTS = 2
LENGTH = 24
WINDOWS = (None, 5, 17)
RATES = (0.0, 0.5)
RECOMPUTE = (False, True)


def attend(rank: int, folder: Path) -> None:
    """Compare this rank's outputs and gradients with those of one that has whole sequences.

    AssertionError where they differ; what was compared is counted in a file of the rank's.
    """
    torch.set_num_threads(1)
    from dsforge.train import core_on_cpu
    from dsforge.train.attention import CausalAttention, Running

    core_on_cpu.prepare(torch.device("cpu"))
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=PARTS)
    shape: Any = SimpleNamespace(num_attention_heads=4, num_query_groups=2)
    place = SimpleNamespace(tp=SimpleNamespace(rank=lambda: 0, size=lambda: 1), cp=dist.group.WORLD)
    generator = torch.Generator().manual_seed(0)
    whole = [torch.randn(LENGTH, 2, heads, 8, generator=generator) for heads in (4, 2, 2)]
    weights = torch.randn(LENGTH, 2, 32, generator=generator)
    compared = 0
    for window, rate, recompute in product(WINDOWS, RATES, RECOMPUTE):

        def mixed(rows: Rows, inputs: list[torch.Tensor]) -> torch.Tensor:
            dropout = Dropout.at(rate, 7, Site.ATTENTION, 1)  # noqa: B023 - called within the turn of the loop
            running = Running(torch.tensor([3, 8]))
            options: dict[str, Any] = {"window": window, "dropout": dropout, "recompute": recompute}  # noqa: B023 - same
            return CausalAttention(shape, running=running, rows=rows, pg_collection=place, **options)(*inputs)

        leaves = [one.clone().requires_grad_() for one in whole]
        expected = mixed(Rows(), leaves)
        gradients = torch.autograd.grad((expected * weights).sum(), leaves)
        rows = Rows(PARTS, rank)
        own = rows.of_part(LENGTH // PARTS, torch.device("cpu"))
        parts = [one[own].requires_grad_() for one in whole]
        found = mixed(rows, parts)
        torch.testing.assert_close(found, expected[own])
        mine = torch.autograd.grad((found * weights[own]).sum(), parts)
        for one, other in zip(mine, gradients, strict=True):
            torch.testing.assert_close(one, other[own])
        compared += 1
    (folder / f"compared-{rank}").write_text(str(compared))
    dist.destroy_process_group()
