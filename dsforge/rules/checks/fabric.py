"""DSF731: the fabric is chosen for NCCL alone."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

_KEY = "cluster.fabric"
_SETS = {"infiniband": "NCCL_NET", "roce": "NCCL_NET", "ethernet": "NCCL_IB_DISABLE"}


def _check(facts: Facts) -> Iterator[Found]:
    fabric = facts.recipe.cluster.fabric
    if fabric != "auto" and facts.hardware.accelerator == "cpu":
        yield Found(
            f"{_KEY} is {fabric}, and ranks on CPUs talk over gloo, which knows TCP alone",
            _KEY,
            f"set {_KEY}=auto; cluster.interface chooses the network",
            Fix(_KEY, "auto"),
        )
    elif (name := _SETS.get(fabric)) in facts.recipe.launch.env:
        yield Found(
            f"launch.env sets {name}, so that {_KEY} would set nothing",
            _KEY,
            f"set {_KEY}=auto, or take {name} out of launch.env",
            Fix(_KEY, "auto"),
        )


RULE = Rule(
    code="DSF731",
    name="fabric",
    severity=Severity.ERROR,
    summary="cluster.fabric tells NCCL of the network between hosts",
    why="NCCL alone chooses between InfiniBand and TCP; for ranks on CPUs the key would be ignored.",
    check=_check,
    plannable=True,
)
