"""DSF730: the rendezvous is chosen for torchrun alone."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

_KEY = "launch.rendezvous"


def _check(facts: Facts) -> Iterator[Found]:
    launch = facts.recipe.launch
    if launch.rendezvous != "static" and launch.launcher != "torchrun":
        yield Found(
            f"the {launch.launcher} launcher has no {launch.rendezvous} rendezvous",
            _KEY,
            f"set {_KEY}=static, or launch.launcher=torchrun",
            Fix(_KEY, "static"),
        )


RULE = Rule(
    code="DSF730",
    name="rendezvous",
    severity=Severity.ERROR,
    summary="launch.rendezvous is torchrun's",
    why="Every other launcher tells its ranks where to meet; the key would be ignored.",
    check=_check,
    plannable=True,
)
