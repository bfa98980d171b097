"""Best-first search: nothing is looked at that could not be among the best.

Starts (degrees, micro-batch) of the same TP, CP, EP and micro-batch take at least what their layers take.
Each takes at least what it takes with the first recomputation of the space, the most virtual stages and the
highest ZeRO stage, its reductions left out; so does each recomputation within it. What takes least by that
bound is opened next, so the first layouts that come out whole are the best. The bounds ask of the cost model
that neither more recomputation or offload, nor fewer virtual stages, nor a lower ZeRO stage make the rest of
a step shorter, and that more virtual stages, less recomputation or less offload make no rank smaller; brute
force is the test.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, NamedTuple

from dsforge.base.errors import Finding
from dsforge.cost.memory import fullest
from dsforge.cost.step import StepSeconds, step_seconds
from dsforge.plan.search.candidate import Candidate, Jobs
from dsforge.plan.search.legality import Legality
from dsforge.plan.search.space import Rest, Space

Objective = Literal["time", "cost", "memory"]
_ROUNDING = 1 - 1e-9
"""A bound may lie above a value by what sums in another order round."""
Key = tuple[float, float, tuple[Any, ...]]
"""What the best have least of; of equals the smaller degrees, micro-batch and ZeRO stage win."""


@dataclass(frozen=True, slots=True)
class Found:
    """A layout that fits and is legal. `memory_bytes`: of the fullest rank, the CUDA context included."""

    candidate: Candidate
    gpus: int
    step: StepSeconds
    memory_bytes: int

    def key(self, objective: Objective) -> Key:
        """Return its rank among others under an objective; `cost` counts GPU-seconds."""
        seconds = self.step.total
        if objective == "memory":
            return (float(self.memory_bytes), seconds, self.candidate)
        return (seconds * (self.gpus if objective == "cost" else 1), 0.0, self.candidate)


class _Group(NamedTuple):
    """Starts that share what a bound of the objective asks for most."""

    starts: list[Candidate]


class _Part(NamedTuple):
    """A start with a choice of recomputation and places: its ZeRO stages and virtual stages are open."""

    start: Candidate
    rest: Rest


class _Timed(NamedTuple):
    """A whole candidate with its time; its memory is not known yet."""

    candidate: Candidate
    step: StepSeconds


class BestFirst:
    """The search in one space. `costed`: how often a step was worked out."""

    def __init__(self, space: Space, jobs: Jobs, legality: Legality, capacity_bytes: int | None) -> None:
        """Take what is searched; without a capacity everything fits."""
        self._space, self._jobs, self.legality = space, jobs, legality
        self.capacity = float("inf") if capacity_bytes is None else capacity_bytes
        self._zeros_by_pp: dict[int, tuple[int, ...]] = {}
        self._micros: dict[int, bool] = {}
        self.memory_error = jobs.memory_error
        self.costed = 0

    def best(self, top: int, objective: Objective) -> list[Found]:
        """Return the best layouts, each of other degrees, from the best on."""
        order = count()
        heap: list[tuple[Key, int, _Group | Candidate | _Part | _Timed | Found]] = [
            (self._group_bound(group, objective), next(order), group) for group in self._groups(objective)
        ]
        heapq.heapify(heap)
        found: dict[tuple[int, ...], Found] = {}
        while heap and len(found) < top:
            _, _, one = heapq.heappop(heap)
            if isinstance(one, Found):
                if one.candidate.degrees not in found and self.legality.fault(one.candidate) is None:
                    found[one.candidate.degrees] = one
                continue
            for key, inner in self._opened(one, objective):
                heapq.heappush(heap, (key, next(order), inner))
        return list(found.values())

    def first_fault(self) -> Finding | None:
        """Return what rules say of the first candidate, None where the numbers leave none."""
        return next(filter(None, map(self.legality.fault, self._space.starts())), None)

    def _groups(self, objective: Objective) -> Iterable[_Group]:
        groups: dict[tuple[int, ...], list[Candidate]] = {}
        for one in self._space.starts():
            if self._legal_micro(one):
                own = (one.pp, one.dp) if objective == "memory" else (one.micro,)
                groups.setdefault((one.tp, one.cp, one.ep, one.sequence_parallel, *own), []).append(one)
        return map(_Group, groups.values())

    def _opened(
        self, one: _Group | Candidate | _Part | _Timed, objective: Objective
    ) -> Iterator[tuple[Key, Candidate | _Part | _Timed | Found]]:
        """Yield what one holds, by what each is worth at least."""
        if isinstance(one, _Group):
            for start in one.starts:
                yield self._bound(_Part(start, self._least_rest(objective)), objective), start
        elif isinstance(one, Candidate):
            for rest in self._space.rests:
                part = _Part(one, rest)
                if self._least_bytes(part) <= self.capacity:
                    yield self._bound(part, objective), part
        elif isinstance(one, _Part):
            for leaf in self._leaves(one):
                step = self.step(leaf)
                timed = _Timed(leaf, step)
                if objective == "memory":
                    yield from self._whole(timed, objective)
                else:
                    yield (self._worth(step.total, objective), 0.0, ()), timed
        else:
            yield from self._whole(one, objective)

    def _whole(self, one: _Timed, objective: Objective) -> Iterator[tuple[Key, Found]]:
        size = self.memory(one.candidate)
        if size <= self.capacity:
            made = Found(one.candidate, self._space.gpus, one.step, size)
            yield made.key(objective), made

    def step(self, one: Candidate) -> StepSeconds:
        """Return the parts of a candidate's step."""
        self.costed += 1
        return step_seconds(self._jobs.job(one))

    def memory(self, one: Candidate) -> int:
        """Return the bytes that the fullest rank takes of its GPU."""
        return fullest(self._jobs.job(one)) + self._jobs.context_bytes

    def _worth(self, seconds: float, objective: Objective) -> float:
        return seconds * (self._space.gpus if objective == "cost" else 1)

    def _least_rest(self, objective: Objective) -> Rest:
        """Return the rest that no other of a start is under: the last recomputes and offloads most."""
        return self._space.rests[-1 if objective == "memory" else 0]

    def _group_bound(self, group: _Group, objective: Objective) -> Key:
        """Return a key that no start of a group is under.

        Of time: what its layers take wherever they are, as on one stage, without bubble and head. Of memory:
        what the smallest micro-batch takes.
        """
        first = group.starts[0]
        part = _Part(first, self._least_rest(objective))
        if objective == "memory":
            least = min(group.starts, key=lambda one: one.micro)
            return self._bound(part._replace(start=least), objective)
        dp = self._space.gpus // (first.tp * first.cp)
        if not self._space.steps(dp, first.micro):
            return (0.0, 0.0, ())  # one stage of so many replicas would do more than the batch
        step = self.step(_within(part, 1, first.zero)._replace(pp=1, dp=dp))
        seconds = step.compute + step.recompute
        seconds += step.tensor_parallel + step.context_parallel + step.expert_parallel
        return (self._worth(seconds, objective) * _ROUNDING, 0.0, ())

    def _bound(self, part: _Part, objective: Objective) -> Key:
        """Return a key that no candidate of a part is under."""
        if objective == "memory":
            return (self._least_bytes(part) * _ROUNDING, 0.0, ())
        start = part.start
        most = self._vps(start)[-1]
        # The highest stage shares out the update among the most ranks.
        zero = max(self._zeros(start), default=start.zero)
        step = self.step(_within(part, most, zero))
        seconds = step.compute + step.recompute + step.head + step.bubble + step.optimizer + step.offload
        seconds += step.tensor_parallel + step.context_parallel + step.expert_parallel
        return (self._worth(seconds, objective) * _ROUNDING, 0.0, ())

    def _least_bytes(self, part: _Part) -> int:
        fewest = self._vps(part.start)[0]
        zeros = self._zeros(part.start)
        return min((self.memory(_within(part, fewest, zero)) for zero in zeros), default=2**62)

    def _leaves(self, part: _Part) -> Iterator[Candidate]:
        for vp in self._vps(part.start):
            for zero in self._zeros(part.start):
                one = _within(part, vp, zero)
                yield one._replace(schedule=self._space.schedule(vp))

    def _vps(self, start: Candidate) -> list[int]:
        return self._space.vps(start.pp, self._space.steps(start.dp, start.micro))

    def _zeros(self, start: Candidate) -> tuple[int, ...]:
        """Return the ZeRO stages that are legal with this PP; what rules say of them depends on no more."""
        if start.pp not in self._zeros_by_pp:
            self._zeros_by_pp[start.pp] = tuple(
                zero
                for zero in self._space.zeros
                if len(self._space.zeros) == 1
                or not self.legality.forbids(start._replace(zero=zero), "parallel.zero")
            )
        return self._zeros_by_pp[start.pp]

    def _legal_micro(self, start: Candidate) -> bool:
        """Tell whether a program takes this micro-batch, which depends on nothing that is searched."""
        if start.micro not in self._micros:
            self._micros[start.micro] = not self.legality.forbids(start, "batch.micro")
        return self._micros[start.micro]


def _within(part: _Part, vp: int, zero: int) -> Candidate:
    rest = part.rest
    return part.start._replace(
        vp=vp,
        zero=zero,
        recompute=rest.recompute,
        optimizer=rest.optimizer,
        parameters=rest.parameters,
    )
