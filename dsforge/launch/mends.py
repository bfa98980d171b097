"""The edit that mends what ended a run, where its reason and its plan tell one. Pure."""

from __future__ import annotations

from dsforge.plan.types import Plan
from dsforge.records.reasons import Reason


def mend_of(reason: Reason, plan: Plan) -> str | None:
    """Return the edit of the recipe that would mend an end of this reason; None where none is known.

    Of a program that is told only what its recipe asks for, no key is known to lower what it holds.
    """
    if plan.external is not None and plan.external.flavour == "script":
        return None
    if reason is Reason.OUT_OF_MEMORY or (reason is Reason.HOST_MEMORY and plan.accelerator == "cpu"):
        return _of_a_rank(plan)
    if reason is Reason.HOST_MEMORY:
        return (
            f"{plan.layout.gpus_per_node} ranks, each with data.workers={plan.data.workers}, share a host's "
            "memory, or what its scheduler gives them of it: ask for more of it, or offload less"
        )
    return None


def _of_a_rank(plan: Plan) -> str:
    """Return what makes a rank hold less at once, beginning with what costs least."""
    micro, train, layout = plan.batch.micro, plan.train, plan.layout
    if micro > 1:
        less = max(part for part in range(1, micro) if micro % part == 0)
        return f"batch.micro={less} instead of {micro}; the global batch stays, accumulated over more steps"
    if train.recompute != "full":
        return "train.recompute=full computes activations again instead of keeping them"
    if layout.engine == "module" and layout.dp > 1 and layout.zero < 3:
        return f"parallel.zero={layout.zero + 1} instead of {layout.zero} spreads model states over replicas"
    return "a larger parallel.tp or parallel.pp spreads a replica over more ranks"
