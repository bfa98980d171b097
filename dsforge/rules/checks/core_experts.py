"""DSF785: experts are ones that megatron-core's layers train."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    experts, parallel = facts.shape.experts, facts.recipe.parallel
    if not facts.capabilities.splits_for_experts or experts is None:
        return
    if experts.normalised and experts.active == 1:
        yield Found(
            f"a token of {facts.shape.name} is sent to 1 expert, whose share is 1 whatever the router says",
            "model",
            "two experts a token, or shares that are not normalised",
        )
    if parallel.tp > 1 and not parallel.sequence_parallel:
        yield Found(
            f"with TP {parallel.tp} every shard would send each token of a sequence to its experts",
            "parallel.sequence_parallel",
            "`sequence_parallel: true`, or `tp: 1`",
            Fix("parallel.sequence_parallel", True),
        )


RULE = Rule(
    code="DSF785",
    name="core-experts",
    severity=Severity.ERROR,
    summary="experts are ones that megatron-core's layers train",
    why="megatron-core refuses both: a router that nothing trains, and the same tokens dispatched by every "
    "shard (0.16.1, core/transformer/transformer_config.py and core/transformer/moe/moe_layer.py).",
    check=_check,
    plannable=True,
)
