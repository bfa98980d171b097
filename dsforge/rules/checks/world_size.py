"""DSF110: TP x PP x CP x DP is the number of GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    parallel, cluster = facts.recipe.parallel, facts.recipe.cluster
    have = f"{cluster.nodes} x {cluster.gpus_per_node} = {facts.devices} ranks"
    degrees = f"TP {parallel.tp} x PP {parallel.pp}" + (f" x CP {parallel.cp}" if parallel.cp > 1 else "")
    whole, rest = divmod(facts.devices, facts.model_parallel)
    if parallel.dp == "auto":
        if rest or not whole:
            yield Found(
                f"{degrees} = {facts.model_parallel} does not divide the cluster's {have}",
                "parallel.tp" if parallel.tp > 1 else "parallel.pp",
                f"choose degrees whose product divides {facts.devices}, or change cluster",
            )
    elif parallel.dp * facts.model_parallel != facts.devices:
        fits = not rest and whole
        yield Found(
            f"{degrees} x DP {parallel.dp} = {parallel.dp * facts.model_parallel} ranks, "
            f"the cluster has {have}",
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
