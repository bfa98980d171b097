"""DSF780: where optimizer states live where parameters do, both are offloaded or neither."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    offload = facts.recipe.offload
    if facts.capabilities.offloads_together and offload.optimizer == "cpu" and offload.parameters == "none":
        yield Found(
            f"under {facts.capabilities.trainer} the optimizer's states live where the parameters do",
            "offload.parameters",
            "offload the parameters, too, with `zero: 3`",
            Fix("offload.parameters", "cpu"),
        )


RULE = Rule(
    code="DSF780",
    name="offload-together",
    severity=Severity.ERROR,
    summary="FSDP offloads parameters and optimizer together",
    why="PyTorch's offload policy moves the shards of parameters; gradients and the update follow them.",
    check=_check,
    plannable=True,
)
