"""A layout that the search considers, and the cost model's job for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dsforge.cost.job import Job, Work
from dsforge.cost.memory import constants as memory
from dsforge.layout.shape import Shape, padded_vocab
from dsforge.layout.stages import assign
from dsforge.plan.job import Measured, work_of
from dsforge.plan.model import model_of


class Candidate(NamedTuple):
    """One choice of everything that the search may vary; the order of its fields breaks ties."""

    tp: int
    pp: int
    cp: int
    ep: int
    vp: int
    dp: int
    micro: int
    zero: int
    recompute: str
    sequence_parallel: bool
    optimizer: str
    parameters: str
    schedule: str

    @property
    def degrees(self) -> tuple[int, ...]:
        """What makes it another layout, not another way to run the same."""
        return (self.tp, self.pp, self.cp, self.ep, self.vp, self.dp)

    def values(self) -> dict[str, Any]:
        """Return it by the recipe's keys."""
        return {key: getattr(self, name) for key, name in KEYS.items()}


KEYS = {
    "parallel.tp": "tp",
    "parallel.pp": "pp",
    "parallel.cp": "cp",
    "parallel.ep": "ep",
    "parallel.vp": "vp",
    "parallel.dp": "dp",
    "batch.micro": "micro",
    "parallel.zero": "zero",
    "train.recompute": "recompute",
    "parallel.sequence_parallel": "sequence_parallel",
    "offload.optimizer": "optimizer",
    "offload.parameters": "parameters",
    "parallel.schedule": "schedule",
}
"""The recipe's key of each field."""


class Jobs:
    """Makes the jobs of candidates; what depends on few degrees is worked out once."""

    def __init__(self, shape: Shape, known: Measured, fixed: Mapping[str, Any], divisor: int) -> None:
        """Take what all candidates share.

        `fixed` holds gpus, seq_len, global_batch, precision, partition, recompute_every, moments, dropout,
        attention_dropout, whole_tables and gathers_context.
        """
        self._shape, self._known, self._fixed, self._divisor = shape, known, fixed, divisor
        self._works: dict[int, Work] = {}
        self._ends: dict[tuple[int, int, int], tuple[int, int]] = {}
        constants = memory.memory_constants()
        self.context_bytes = int(constants.engines[known.engine].context_mib * memory.MIB)
        self.memory_error = constants.errors["device"]
        """Mean relative error of the memory model."""

    def job(self, one: Candidate) -> Job:
        """Return a candidate's job."""
        fixed = self._fixed
        first, last = self._first_and_last(one.tp, one.pp, one.vp)
        return Job(
            work=self._work(one.tp),
            machine=self._known.machine,
            engine=self._known.engine,
            gpus=fixed["gpus"],
            tp=one.tp,
            pp=one.pp,
            dp=one.dp,
            micro=one.micro,
            global_batch=fixed["global_batch"],
            precision=fixed["precision"],
            vp=one.vp,
            cp=one.cp,
            ep=one.ep,
            zero=one.zero,
            recompute=one.recompute,
            sequence_parallel=one.sequence_parallel,
            flash_attention=not fixed["attention_dropout"],
            offload=one.optimizer != "none",
            offload_parameters=one.parameters != "none",
            optimizer_on_disk=one.optimizer == "nvme",
            parameters_on_disk=one.parameters == "nvme",
            schedule=one.schedule,
            recompute_every=fixed["recompute_every"],
            moments=fixed["moments"],
            first_layers=first,
            last_layers=last,
            gathers_context=fixed["gathers_context"],
            expert_tp=1 if one.ep > 1 else None,
        )

    def _work(self, tp: int) -> Work:
        if tp not in self._works:
            model = model_of(self._shape, padded_vocab(self._shape.vocab, tp, self._divisor))
            self._works[tp] = work_of(
                model,
                self._fixed["seq_len"],
                dropout=self._fixed["dropout"] > 0,
                tables=tp if self._fixed["whole_tables"] else 1,
            )
        return self._works[tp]

    def _first_and_last(self, tp: int, pp: int, vp: int) -> tuple[int, int]:
        key = (tp, pp, vp)
        if key not in self._ends:
            vocab = padded_vocab(self._shape.vocab, tp, self._divisor)
            stages = assign(self._shape, pp, self._fixed["partition"], vocab, vp)
            self._ends[key] = (stages[0].count, stages[-1].count)
        return self._ends[key]
