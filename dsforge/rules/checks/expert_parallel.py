"""DSF774: EP divides the experts, and the ranks of a stage."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    ep, experts, dp = facts.recipe.parallel.ep, facts.shape.experts, facts.dp
    if ep == 1 or not facts.capabilities.takes("parallel.ep", ep):
        return
    ranks = facts.recipe.parallel.tp * facts.recipe.parallel.cp * dp if dp is not None else None
    if experts is None:
        yield Found(
            f"EP {ep}, and {facts.shape.name} has no experts",
            "parallel.ep",
            "`ep: 1`, or a model with experts",
            Fix("parallel.ep", 1),
        )
    elif experts.count % ep or (ranks is not None and ranks % ep):
        of = f"{experts.count} experts" if experts.count % ep else f"{ranks} ranks of a stage"
        fits = [
            degree
            for degree in range(1, ep)
            if experts.count % degree == 0 and (ranks is None or ranks % degree == 0)
        ]
        yield Found(
            f"{of} cannot be dealt out by EP {ep}",
            "parallel.ep",
            "EP that divides the experts, and TP x CP x DP",
            Fix("parallel.ep", fits[-1]),
        )


RULE = Rule(
    code="DSF774",
    name="expert-parallel",
    severity=Severity.ERROR,
    summary="EP divides the experts, and the ranks of a stage",
    why="Each rank of a group holds as many whole experts as the others; there are no halves of them.",
    check=_check,
    plannable=True,
)
