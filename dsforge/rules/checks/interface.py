"""DSF733: the interface is said once."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.recipe.vocabulary import removal
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

_KEY = "cluster.interface"


def _check(facts: Facts) -> Iterator[Found]:
    recipe = facts.recipe
    on_gpus = facts.hardware.accelerator != "cpu"
    wanted = {"GLOO_SOCKET_IFNAME", *(("NCCL_SOCKET_IFNAME",) if on_gpus else ())}
    if recipe.cluster.interface is not None and wanted <= recipe.launch.env.keys():
        yield Found(
            f"launch.env sets {' and '.join(sorted(wanted))}, so that {_KEY} would set nothing",
            _KEY,
            f"{removal(_KEY)}, or take them out of launch.env",
            Fix(_KEY, None),
        )


RULE = Rule(
    code="DSF733",
    name="interface",
    severity=Severity.ERROR,
    summary="cluster.interface is not overruled by launch.env",
    why="A variable that the recipe sets itself wins; the key would be ignored.",
    check=_check,
    plannable=True,
)
