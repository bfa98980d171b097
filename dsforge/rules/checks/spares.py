"""DSF720: what is kept for restarts can be used by one."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.recipe.sections import LaunchSection
from dsforge.recipe.vocabulary import removal
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

_SPARES, _SHRINK, _RESTARTS = "cluster.spares", "launch.shrink", "launch.restarts"
_TAKES_SPARES = ("ssh", "pdsh", "openmpi", "mpich", "torchrun", "slurm")


def _check(facts: Facts) -> Iterator[Found]:
    cluster, launch = facts.recipe.cluster, facts.recipe.launch
    has_hosts = cluster.hostfile is not None and launch.launcher != "local"
    if cluster.spares and not (launch.launcher in _TAKES_SPARES or (has_hosts and cluster.nodes > 1)):
        yield Found(
            f"no launcher could put one of {cluster.spares} spares in a host's place",
            _SPARES,
            f"name cluster.hostfile and set launch.launcher=ssh, or {removal(_SPARES)}",
            Fix(_SPARES, None),
        )
    if launch.shrink and not has_hosts:
        yield Found(
            "a plan for fewer nodes needs to know the hosts, and none are named",
            _SHRINK,
            f"name cluster.hostfile, or {removal(_SHRINK)}",
            Fix(_SHRINK, None),
        )
    kept = {
        _SPARES: bool(cluster.spares),
        _SHRINK: launch.shrink,
        "launch.restart_window": bool(launch.restart_window),
        "launch.restart_backoff": launch.restart_backoff
        != LaunchSection.model_fields["restart_backoff"].default,
    }
    for key, wanted in kept.items():
        if wanted and not launch.restarts:
            yield Found(
                f"{key} is for restarts, and {_RESTARTS} is 0",
                key,
                f"set {_RESTARTS}, or {removal(key)}",
                Fix(_RESTARTS, 3),
            )


RULE = Rule(
    code="DSF720",
    name="spares",
    severity=Severity.ERROR,
    summary="what is kept for restarts can be used by one",
    why="Spares that nothing would ever start on stand idle, and the run ends with its first lost host.",
    check=_check,
    plannable=True,
)
