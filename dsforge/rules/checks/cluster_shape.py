"""DSF762: a rented machine has the GPUs that the recipe names."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.catalog.tables import cluster_shapes
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    cluster, known = facts.recipe.cluster, cluster_shapes()
    if cluster.shape is None:
        return
    shape = known.get(cluster.shape.lower())
    if shape is None:
        close = difflib.get_close_matches(cluster.shape.lower(), known, n=1, cutoff=0.4)
        hint = f"did you mean `{close[0]}`?" if close else "`dsforge presets list` lists what is known"
        yield Found(f"unknown machine `{cluster.shape}`", "cluster.shape", hint)
        return
    if facts.hardware.name != shape.gpu:
        hint = f"{shape.name} has {shape.gpus} x {shape.gpu}"
        found = f"{shape.name} has no {facts.hardware.name}"
        yield Found(found, "cluster.gpu", hint, Fix("cluster.gpu", shape.gpu))
    elif cluster.gpus_per_node > shape.gpus:
        yield Found(
            f"{shape.name} has {shape.gpus} GPUs, not {cluster.gpus_per_node}",
            "cluster.gpus_per_node",
            f"at most {shape.gpus}",
            Fix("cluster.gpus_per_node", shape.gpus),
        )


RULE = Rule(
    code="DSF762",
    name="cluster-shape",
    severity=Severity.ERROR,
    summary="a rented machine has the GPUs that the recipe names",
    why="The estimate would take the network of one machine and the GPUs of another.",
    check=_check,
)
