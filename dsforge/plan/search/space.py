"""What the search may choose from: each dimension's values under the trainer's table and the shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from dsforge.catalog.engines.capabilities import Capabilities
from dsforge.catalog.tables import Hardware
from dsforge.layout.batch import legal_micros
from dsforge.layout.shape import Shape
from dsforge.plan.search.candidate import Candidate
from dsforge.recipe.model import Recipe
from dsforge.recipe.settled import value_of
from dsforge.rules.degrees import legal_tp

_RECOMPUTE = ("none", "selective", "full")
"""From the fastest to the smallest."""
_ZERO = (0, 1, 2, 3)
_PLACES = ("none", "cpu", "nvme")


@dataclass(frozen=True, slots=True)
class Rest:
    """What is chosen within degrees and a micro-batch: recomputation and places of states."""

    recompute: str
    optimizer: str
    parameters: str


class Space:
    """The candidates of a recipe; a key that it fixes has one value. `gpus`: ranks of the whole cluster."""

    def __init__(
        self, recipe: Recipe, shape: Shape, hardware: Hardware, trainer: Capabilities, nodes: int
    ) -> None:
        self._recipe, self._shape, self._trainer = recipe, shape, trainer
        self._per_node = recipe.cluster.gpus_per_node
        self._domain = hardware.domain
        self.gpus = nodes * self._per_node
        self.rests = tuple(self._rests())
        self.zeros = self._open("parallel.zero", _ZERO)

    def starts(self) -> Iterator[Candidate]:
        """Yield a candidate for each TP, PP, CP, EP, micro-batch and sequence parallelism.

        It has the fewest virtual stages and the first of all other values. There is none where the trainer
        refuses a value that the recipe fixes: a rule says so of the recipe, whatever the rest.
        """
        if not (self.rests and self.zeros):
            return
        rest, batch = self.rests[0], self._recipe.batch
        for tp in self._tps():
            for pp in self._pps(tp):
                for cp in self._cps(tp * pp):
                    dp = self.gpus // (tp * pp * cp)
                    if self._fixed("parallel.dp", dp) and batch.global_size % dp == 0:
                        micros = [(micro, self._least_vp(pp, dp, micro)) for micro in self._micros(dp)]
                        for ep in self._eps(tp * cp * dp):
                            for micro, vp in micros:
                                for split in self._splits(tp, cp) if vp else ():
                                    yield Candidate(
                                        *(tp, pp, cp, ep, vp, dp, micro, self.zeros[0]),
                                        *(rest.recompute, split, rest.optimizer, rest.parameters),
                                        self.schedule(vp),
                                    )

    def steps(self, dp: int, micro: int) -> int:
        """Return the micro-batches of a step."""
        steps: int = self._recipe.batch.global_size // (dp * micro)
        return steps

    def vps(self, pp: int, steps: int) -> list[int]:
        """Return the numbers of virtual stages that so many micro-batches a step allow, ascending."""
        layers, uniform = self._shape.layers // pp, self._recipe.parallel.partition == "uniform"
        several = pp > 1 and steps % pp == 0 and self._shape.layers % pp == 0 and uniform
        wanted = self._recipe.parallel.schedule
        if wanted == "gpipe" or not self._trainer.takes("parallel.schedule", "interleaved"):
            several = False
        degrees = [vp for vp in _divisors(layers) if vp == 1 or several]
        fixed = wanted == "1f1b" and "schedule" in self._recipe.parallel.model_fields_set
        if fixed and self._recipe.parallel.vp == "auto":
            degrees = degrees[:1]
        if wanted == "interleaved":
            degrees = degrees[1:]
        return list(self._open("parallel.vp", degrees))

    def _least_vp(self, pp: int, dp: int, micro: int) -> int:
        """Return the fewest virtual stages, 0 where the schedule takes no such number of micro-batches."""
        return next(iter(self.vps(pp, self.steps(dp, micro))), 0)

    def schedule(self, vp: int) -> str:
        """Return the schedule: virtual stages are what the interleaved one is for."""
        wanted = self._recipe.parallel.schedule
        if vp > 1:
            return "interleaved"
        return wanted if wanted == "gpipe" else "1f1b"

    def _open(self, key: str, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return those of the values that the recipe and the trainer's table leave."""
        return tuple(one for one in values if self._fixed(key, one) and self._trainer.takes(key, one))

    def _fixed(self, key: str, value: Any) -> bool:
        return value_of(self._recipe, key) in ("auto", value)

    def _tps(self) -> Iterator[int]:
        asked = self._recipe.parallel.tp
        for tp in self._open("parallel.tp", legal_tp(self._shape)):
            near = self._per_node % tp == 0 or self._domain % tp == 0
            if self.gpus % tp == 0 and (near or asked == tp):
                yield tp

    def _pps(self, tp: int) -> Iterator[int]:
        equal = self._recipe.parallel.partition == "uniform"
        for pp in self._open("parallel.pp", _divisors(self.gpus // tp)):
            if pp <= self._shape.layers and not (equal and self._shape.layers % pp):
                yield pp

    def _cps(self, model_parallel: int) -> Iterator[int]:
        for cp in self._open("parallel.cp", _divisors(self.gpus // model_parallel)):
            if cp == 1 or self._recipe.batch.seq_len % (2 * cp) == 0:
                yield cp

    def _eps(self, ranks: int) -> Iterator[int]:
        experts = self._shape.experts.count if self._shape.experts else 1
        for ep in self._open("parallel.ep", _divisors(experts)):
            if ranks % ep == 0:
                yield ep

    def _micros(self, dp: int) -> tuple[int, ...]:
        return self._open("batch.micro", legal_micros(self._recipe.batch.global_size, dp))

    def _splits(self, tp: int, cp: int) -> tuple[bool, ...]:
        possible = tp > 1 and self._recipe.batch.seq_len % (tp * cp) == 0
        needed = tp > 1 and self._shape.experts is not None and self._trainer.splits_for_experts
        splits = [split for split in (False, True) if (possible if split else not needed)]
        return self._open("parallel.sequence_parallel", splits)

    def _rests(self) -> Iterator[Rest]:
        places = _PLACES if self._recipe.offload.path else _PLACES[:2]
        for recompute in self._open("train.recompute", _RECOMPUTE):
            for optimizer in self._open("offload.optimizer", places):
                for parameters in self._open("offload.parameters", places):
                    if parameters == "none" or optimizer != "none":
                        yield Rest(recompute, optimizer, parameters)


def values_of_key(recipe: Recipe, shape: Shape, key: str) -> Sequence[Any]:
    """Return the values of a key that there are for a model on a cluster, legal under the trainer or not."""
    gpus, size = recipe.cluster.nodes * recipe.cluster.gpus_per_node, recipe.batch.global_size
    degrees = _divisors(gpus)
    values: dict[str, Sequence[Any]] = {
        "parallel.tp": legal_tp(shape),
        "parallel.pp": [pp for pp in degrees if pp <= shape.layers],
        "parallel.cp": [cp for cp in degrees if recipe.batch.seq_len % (2 * cp) == 0 or cp == 1],
        "parallel.ep": _divisors(shape.experts.count) if shape.experts else [1],
        "parallel.vp": _divisors(shape.layers),
        "parallel.dp": degrees,
        "batch.micro": legal_micros(size, 1),
        "parallel.zero": _ZERO,
        "train.recompute": _RECOMPUTE,
        "parallel.sequence_parallel": (False, True),
        "offload.optimizer": _PLACES,
        "offload.parameters": _PLACES,
        "parallel.schedule": ("gpipe", "1f1b", "interleaved"),
    }
    return values[key]


@cache
def _divisors(number: int) -> tuple[int, ...]:
    """Return them ascending, made of the prime factors: a large cluster has a large root, and small ones."""
    divisors, rest, prime = [1], number, 2
    while rest > 1:
        if prime * prime > rest:
            prime = rest
        powers = [1]
        while rest % prime == 0:
            powers.append(powers[-1] * prime)
            rest //= prime
        divisors = [one * power for one in divisors for power in powers]
        prime += 1
    return tuple(sorted(divisors))
