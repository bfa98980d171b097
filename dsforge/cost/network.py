"""Seconds of a job's communication, before what hides it is taken off."""

from __future__ import annotations

from dsforge.cost.calibration import Calibration
from dsforge.cost.job import Job

_HALF_BYTES = 2.0
_LOW = ("fp8", "fp4")
_LINK_SHARE = 0.8
"""Of the fast link, for the long messages of gradients."""
_RING_SHARE = 0.7


class Network:
    """Times of a job's collectives under a calibration.

    Ranks stand TP innermost, then context, data and pipeline. A group with several ranks on each node uses
    all their network ports at once, as a ring over rails does.
    """

    def __init__(self, job: Job, constants: Calibration) -> None:
        self._job = job
        self._common = constants.common
        machine = job.machine
        self._near = min(job.gpus, max(machine.domain, machine.gpus_per_node))
        self._link = machine.link_bytes_per_second
        self._attained = machine.link_bytes_per_second * self._common["link"]
        self.port = machine.network_bytes_per_second * constants.fabrics[machine.fabric]
        engine = constants.engines[job.engine]
        self.gathered_bytes = 1.0 if engine.low_gathers and job.precision in _LOW else _HALF_BYTES
        self._plain_dispatch = engine.plain_dispatch
        self._fused = engine.fused_experts and constants.generations[machine.generation].fuses_experts
        self._latency = constants.common["message_seconds"]

    def group_rate(self, ranks: int, stride: int, *, one_port: bool = False) -> float:
        """Return bytes a second of a ring over `ranks` that stand `stride` apart."""
        a_node = max(1, self._near // stride)
        if ranks <= a_node:
            return self._attained * _LINK_SHARE
        a_node = 1 if one_port else a_node
        return min(self._link * _LINK_SHARE, a_node * self.port)

    def tensor_parallel(self) -> float:
        """Return one direction's two all-reduces of a layer's activations."""
        job = self._job
        if job.tp == 1:
            return 0.0
        rate = self._attained if job.tp <= self._near else self.port
        # A reduction of sums, and a gathering of what the next product takes.
        each = _HALF_BYTES + self.gathered_bytes
        moved = (job.tp - 1) / job.tp * job.tokens * job.work.hidden * each
        return 2 * (moved / rate + self._latency)

    def context_parallel(self, core: float) -> float:
        """Return one direction's keys and values; of a ring what the attention core does not hide."""
        job = self._job
        if job.cp == 1:
            return 0.0
        rate = self.port if job.tp * job.cp > self._near else self._link * _RING_SHARE
        moved = (job.cp - 1) * job.tokens * 2 * job.work.kv_width / job.tp * _HALF_BYTES
        return moved / rate if job.gathers_context else max(0.0, moved / rate - core)

    def expert_parallel(self) -> float:
        """Return one direction's dispatch and combination of tokens; a token goes once to each node."""
        job, experts = self._job, self._job.work.experts
        if experts is None or job.ep == 1:
            return 0.0
        group = job.ep * job.experts_split
        inside = job.machine.gpus_per_node if self._plain_dispatch else self._near
        nodes = max(1.0, group / inside)
        row = job.tokens / job.tp * job.work.hidden * _HALF_BYTES
        copies = experts.chosen / nodes if self._plain_dispatch else 1 - (1 - 1 / nodes) ** experts.chosen
        far = row * (nodes - 1) * copies
        near = row * experts.chosen * (1 - 1 / min(group, inside))
        rate = self._common["fused_dispatch" if self._fused else "dispatch"]
        return 2 * (far / self.port + near / (self._link * rate))

    def between_stages(self, *, split: bool) -> float:
        """Return sending a micro-batch on and its gradient back."""
        job = self._job
        moved = job.tokens * job.work.hidden * _HALF_BYTES / (job.tp if split else 1)
        rate = self._attained if job.gpus <= self._near else self.port
        return 2 * moved / rate + 2 * self._latency

    def gradients(self, parameters: float, gradient_bytes: float, weight_bytes: float) -> float:
        """Return the step's reduction of gradients and the gathering of weights."""
        job = self._job
        ranks = job.dp * job.cp
        if ranks == 1:
            return 0.0
        moved = parameters * (gradient_bytes + weight_bytes) * (ranks - 1) / ranks
        return moved / self.group_rate(ranks, job.tp) + self._common["rank_seconds"] * ranks * 20

    def shards(self, parameters: float, weight_bytes: float, *, one_port: bool) -> float:
        """Return a step's gathers of sharded weights, two a micro-batch, and its scatters of gradients."""
        job, work = self._job, self._job.work
        rate = self.group_rate(job.dp, job.tp, one_port=one_port)
        once = _HALF_BYTES * parameters * (job.dp - 1) / job.dp
        gathers = 2 if job.zero >= 3 else 0
        weights = gathers * once * weight_bytes / _HALF_BYTES
        moved = job.accumulation_steps * (weights + once) + (once if job.zero < 3 else 0)
        calls = job.accumulation_steps * work.layers * 3 * self._common["rank_seconds"] * job.dp
        return moved / rate + calls
