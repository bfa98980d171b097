"""DSF155: the launcher reaches the nodes, and the hostfile is read."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.recipe.vocabulary import removal
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

_KEY = "launch.launcher"
_OVER_SSH = ("ssh", "pdsh", "openmpi", "mpich", "torchrun")
_CHOOSING = {"slurm": "Slurm", "kubernetes": "Kubernetes", "pbs": "PBS"}
_PDSH_HOSTS = 1024
"""deepspeed's PDSH_MAX_FAN_OUT: pdsh starts no further host before one of these has ended."""


def _check(facts: Facts) -> Iterator[Found]:
    cluster, launcher = facts.recipe.cluster, facts.recipe.launch.launcher
    if launcher == "local" and cluster.nodes > 1:
        yield Found(
            f"the local launcher starts ranks on one machine, the recipe has {cluster.nodes} nodes",
            _KEY,
            "set launch.launcher to auto and name cluster.hostfile, or to slurm; or set cluster.nodes=1",
            Fix(_KEY, "slurm" if cluster.hostfile is None else "pdsh"),
        )
    elif launcher in _OVER_SSH and cluster.hostfile is None:
        yield Found(
            f"{launcher} starts ranks on the hosts of a hostfile, and none is named",
            _KEY,
            "name cluster.hostfile, or set launch.launcher to slurm, which chooses hosts itself",
            Fix(_KEY, "slurm"),
        )
    elif launcher in _CHOOSING and cluster.hostfile is not None:
        yield Found(
            f"{_CHOOSING[launcher]} chooses the hosts, the hostfile would be ignored",
            "cluster.hostfile",
            f"{removal('cluster.hostfile')}, or start its hosts with launch.launcher=pdsh",
            Fix("cluster.hostfile", None),
        )
    elif launcher in ("pdsh", "auto") and cluster.hostfile is not None and cluster.nodes > _PDSH_HOSTS:
        yield Found(
            f"deepspeed starts at most {_PDSH_HOSTS:,} hosts over pdsh at a time, and the first of "
            f"{cluster.nodes:,} would wait for the others for ever",
            _KEY,
            "set launch.launcher=ssh, which starts all of them",
            Fix(_KEY, "ssh"),
        )
    for key, choice in (("cluster.include", cluster.include), ("cluster.exclude", cluster.exclude)):
        if choice is not None and cluster.hostfile is None:
            yield Found(
                f"{key} chooses among the hosts of a hostfile, and none is named",
                key,
                f"name cluster.hostfile, or {removal(key)}",
                Fix(key, None),
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
