"""DSF155: the launcher reaches the nodes, and the hostfile is read."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.recipe.vocabulary import removal
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

_KEY = "launch.launcher"
_OVER_SSH = ("ssh", "pdsh", "openmpi", "mpich", "torchrun")


def _check(facts: Facts) -> Iterator[Found]:
    cluster, launcher = facts.recipe.cluster, facts.recipe.launch.launcher
    if launcher == "local" and cluster.nodes > 1:
        yield Found(
            f"the local launcher starts ranks on one machine, the recipe has {cluster.nodes} nodes",
            _KEY,
            "set launch.launcher to auto and name cluster.hostfile, or set it to slurm",
            Fix(_KEY, "slurm" if cluster.hostfile is None else "pdsh"),
        )
    elif launcher in _OVER_SSH and cluster.hostfile is None:
        yield Found(
            f"{launcher} starts ranks on the hosts of a hostfile, and none is named",
            _KEY,
            "name cluster.hostfile, or set launch.launcher to slurm, which chooses hosts itself",
            Fix(_KEY, "slurm"),
        )
    elif launcher == "slurm" and cluster.hostfile is not None:
        yield Found(
            "Slurm chooses the hosts, the hostfile would be ignored",
            "cluster.hostfile",
            f"{removal('cluster.hostfile')}, or start its hosts with launch.launcher=pdsh",
            Fix("cluster.hostfile", None),
        )


RULE = Rule(
    code="DSF155",
    name="launcher-hosts",
    severity=Severity.ERROR,
    summary="the launcher reaches the nodes, and the hostfile is read",
    why="A launcher without hosts falls back to one machine, and trains something else than the recipe.",
    check=_check,
    plannable=True,
)
