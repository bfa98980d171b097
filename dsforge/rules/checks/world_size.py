"""DSF110: TP x PP x CP x DP is the number of GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    parallel, cluster = facts.recipe.parallel, facts.recipe.cluster
    have = f"{cluster.nodes} x {cluster.gpus_per_node} = {facts.devices} ranks"
    known = {"TP": parallel.tp, "PP": parallel.pp} | ({"CP": parallel.cp} if parallel.cp > 1 else {})
    decided = {
        name: value for name, value in known.items() if f"parallel.{name.lower()}" not in facts.undecided
    }
    if parallel.dp != "auto":
        decided["DP"] = parallel.dp
    degrees, ranks = " x ".join(f"{name} {value}" for name, value in decided.items()), prod(decided.values())
    if parallel.dp == "auto" or not decided.keys() >= known.keys():
        if facts.devices % ranks:
            yield Found(
                f"{degrees} = {ranks} does not divide the cluster's {have}",
                next(
                    (f"parallel.{name.lower()}" for name, value in decided.items() if value > 1),
                    "parallel.tp",
                ),
                f"choose degrees whose product divides {facts.devices}, or change cluster",
            )
    elif ranks != facts.devices:
        whole, rest = divmod(facts.devices, facts.model_parallel)
        fits = not rest and whole
        yield Found(
            f"{degrees} = {ranks} ranks, the cluster has {have}",
            "parallel.dp",
            f"dp: {whole} fits" if fits else f"choose degrees whose product is {facts.devices}",
            Fix("parallel.dp", whole) if fits else None,
        )


RULE = Rule(
    code="DSF110",
    name="world-size",
    severity=Severity.ERROR,
    summary="TP x PP x CP x DP is the number of GPUs",
    why="A world of another size than planned trains another batch, or leaves GPUs idle, without a word.",
    check=_check,
)
