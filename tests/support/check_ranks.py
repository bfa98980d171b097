"""Three ranks, processes of this machine, whose parameters and gradients are compared."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dsforge.base.errors import DsforgeError
from dsforge.plan.types import Plan
from dsforge.records.run_dir import AttemptDir
from dsforge.train.checks import Checks
from dsforge.train.held import Piece
from dsforge.train.recorder import Recorder

RANKS = 3


class Engine:
    """What the checks ask of an engine: weights alike on all ranks, gradients whole or dealt out."""

    def __init__(self, rank: int) -> None:
        torch.manual_seed(1)
        # Another name on each rank, as of stages; the others have copies everywhere.
        self.parameters = {
            "b": nn.Parameter(torch.randn(7, 3)),
            "a": nn.Parameter(torch.randn(5)),
            f"own.{rank}": nn.Parameter(torch.randn(4) + rank),
        }
        self.gradients = {name: Piece.whole(torch.ones_like(one)) for name, one in self.parameters.items()}
        self.modules = ()
        self.ties_bitwise = True

    def reduced_gradients(self) -> dict[str, Piece]:
        """Return the gradients as they were set."""
        return self.gradients


def _told(call: Any) -> list[str] | None:
    try:
        call()
    except DsforgeError as error:
        return [error.code, error.message]
    return None


def compare(rank: int, folder: Path, plan: Plan) -> None:
    """Look at equal copies, then at ones that differ; every rank writes what it was told."""
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=RANKS)
    context: Any = SimpleNamespace(plan=plan, rank=rank, world_size=RANKS)
    recorder = Recorder(AttemptDir(folder), plan, rank, torch.device("cpu"))
    hosts = [f"host{number}" for number in range(RANKS)]

    def checks(engine: Any) -> Checks:
        return Checks(context, engine, recorder, torch.device("cpu"), hosts)

    engine = Engine(rank)
    made = checks(engine)

    def step(number: int) -> list[str] | None:
        made.begin(number)
        return _told(made.before_update) or _told(lambda: made.parameters(number))

    told: dict[str, Any] = {"first": _told(lambda: made.parameters(0, is_kept=True))}
    told["equal"] = [step(number) for number in range(1, 7)]
    told["made"] = made.made
    if rank == 2:
        with torch.no_grad():
            engine.parameters["b"][6, 2] += 1e-6
    told["unwatched"] = step(7)
    told["one"] = step(9)
    with torch.no_grad():
        engine.parameters["a"] += rank * 1e-6
    told["all"] = _told(lambda: made.parameters(10, is_kept=True))

    parts = Engine(rank)
    whole = torch.arange(21.0)
    cuts = [(0, 8), (8, 8), (16, 5)]
    start, length = cuts[rank]
    parts.gradients["b"] = Piece(start, 21, whole[start : start + length])
    made = checks(parts)
    del parts.parameters["a"], parts.parameters["b"], parts.gradients["a"]
    told["dealt out"] = _told(lambda: made.parameters(0, is_kept=True)) or step(2)
    told["no copies"] = made.made
    parts.gradients["b"] = Piece(start, 21, whole[start : start + length - (rank == 1)])
    made = checks(parts)
    told["left out"] = step(2)
    (folder / f"{rank}.json").write_text(json.dumps(told))
    dist.destroy_process_group()
