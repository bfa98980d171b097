"""What each group of ranks costs a step: seconds that nothing hides, and the link they go over."""

from __future__ import annotations

from dataclasses import dataclass

from dsforge.cost.job import Job
from dsforge.cost.step import StepSeconds


@dataclass(frozen=True, slots=True)
class GroupShare:
    """One kind of group. `link`: the fast link inside a node or rack, or the network by its kind."""

    group: str
    ranks: int
    link: str
    seconds: float
    share: float


def communication(job: Job, step: StepSeconds) -> tuple[GroupShare, ...]:
    """Return the groups of several ranks: TP innermost, then context, data (experts within), pipeline."""
    inner = job.tp * job.cp
    found = (
        ("tp", job.tp, job.tp, step.tensor_parallel),
        ("cp", job.cp, inner, step.context_parallel),
        ("ep", job.ep, job.experts_split * job.ep, step.expert_parallel),
        ("dp x cp" if job.cp > 1 else "dp", job.dp * job.cp, inner * job.dp, step.data_parallel),
        ("pp", job.pp, job.gpus, step.pipeline_sends),
    )
    machine = job.machine
    near = max(machine.domain, machine.gpus_per_node)
    return tuple(
        GroupShare(group, ranks, "link" if span <= near else machine.fabric, seconds, seconds / step.total)
        for group, ranks, span, seconds in found
        if ranks > 1
    )
