"""The hosts against the plan: what is left of a hostfile after the recipe's choice is the planned world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.plan.types import Layout, Plan
from dsforge.recipe.host_choice import Chosen, parse_choice
from dsforge.recipe.host_names import same
from dsforge.render.hosts.hostfile import Hosts

Gpus = dict[str, tuple[int, ...]]
"""The GPUs of each host, by the numbers that the host gives them."""
PlaceOf = Callable[[str], Place | None]
"""Where a key of the recipe stands."""
_INCLUDE, _EXCLUDE = "cluster.include", "cluster.exclude"


@dataclass(frozen=True, slots=True)
class World:
    """The planned hosts with their ranks, in order. `gpus`: those that are chosen, None where it is all."""

    hosts: Hosts
    gpus: Gpus | None = None


def planned_world(hosts: Hosts, plan: Plan, file: str, place_of: PlaceOf) -> World:
    """Return what the recipe chooses of the hosts.

    DsforgeError DSF090 where it chooses what is not there, DSF041 where the rest is not the planned world.
    """
    if plan.include is None and plan.exclude is None:
        check_hosts(hosts, plan.layout, file)
        return World(hosts)
    left = {host: tuple(range(slots)) for host, slots in hosts.items()}
    spelled = {same(host): host for host in hosts}
    if plan.include is not None:
        asked = _asked(plan.include, hosts, spelled, _INCLUDE, file, place_of)
        left = {host: asked[host] for host in left if host in asked}
    if plan.exclude is not None:
        out = _asked(plan.exclude, hosts, spelled, _EXCLUDE, file, place_of)
        kept = {host: tuple(set(gpus) - set(out.get(host, ()))) for host, gpus in left.items()}
        left = {host: tuple(sorted(gpus)) for host, gpus in kept.items() if gpus}
    _check_left(left, plan, place_of)
    ranks = {host: len(gpus) for host, gpus in left.items()}
    whole = all(count == hosts[host] for host, count in ranks.items())
    return World(ranks, None if whole else left)


def _asked(
    text: str, hosts: Hosts, spelled: dict[str, str], key: str, file: str, place_of: PlaceOf
) -> dict[str, tuple[int, ...]]:
    """Return the GPUs that a choice names by host, in the hostfile's spelling."""
    asked: dict[str, tuple[int, ...]] = {}
    for one in parse_choice(text):
        host = spelled.get(same(one.host))
        if host is None:
            message = f"{key} names host `{one.host}`, which {file} does not"
            raise _fault(message, place_of(key), "name hosts of the hostfile")
        gpus = tuple(range(hosts[host])) if one.gpus is None else one.gpus
        _check_gpus(one, hosts[host], key, place_of)
        if set(gpus) & set(asked.get(host, ())):
            raise _fault(f"{key} names host `{host}` twice", place_of(key), "name each host once")
        asked[host] = tuple(sorted((*asked.get(host, ()), *gpus)))
    return asked


def _check_gpus(one: Chosen, slots: int, key: str, place_of: PlaceOf) -> None:
    beyond = [gpu for gpu in one.gpus or () if gpu >= slots]
    if beyond:
        raise _fault(
            f"{key} names GPU {beyond[0]} of `{one.host}`, which has slots 0 to {slots - 1}",
            place_of(key),
            f"choose below {slots}, or write slots={beyond[-1] + 1} into the hostfile if the GPUs are there",
        )


def _fault(message: str, place: Place | None, hint: str) -> DsforgeError:
    return DsforgeError("DSF090", message, place, hint, exit_code=ExitCode.FINDINGS)


def _check_left(left: Gpus, plan: Plan, place_of: PlaceOf) -> None:
    key = _INCLUDE if plan.include is not None else _EXCLUDE
    layout = plan.layout
    if len(left) != layout.nodes:
        raise DsforgeError(
            "DSF041",
            f"{key} leaves {len(left)} hosts, the recipe has cluster.nodes {layout.nodes}",
            place_of(key),
            f"leave {layout.nodes} hosts" + (f", or set cluster.nodes={len(left)}" if left else ""),
            exit_code=ExitCode.FINDINGS,
        )
    for host, gpus in left.items():
        if len(gpus) != layout.gpus_per_node:
            place = place_of(key)
            raise DsforgeError(
                "DSF041",
                f"{key} leaves {len(gpus)} GPUs of host `{host}`, "
                f"the recipe has cluster.gpus_per_node {layout.gpus_per_node}",
                place,
                f"leave {layout.gpus_per_node} of each host, such as `{host}:{_first(layout.gpus_per_node)}`",
                exit_code=ExitCode.FINDINGS,
            )


def _first(count: int) -> str:
    return "0" if count == 1 else f"0-{count - 1}"


def check_hosts(hosts: Hosts, layout: Layout, file: str) -> None:
    """Raise DsforgeError DSF041 unless the hosts are the planned nodes and have the planned slots."""
    if len(hosts) != layout.nodes:
        raise DsforgeError(
            "DSF041",
            f"{len(hosts)} hosts, the recipe has cluster.nodes {layout.nodes}",
            Place(file),
            f"list {layout.nodes} hosts, choose them by cluster.include or cluster.exclude, "
            f"or set cluster.nodes={len(hosts)}",
            exit_code=ExitCode.FINDINGS,
        )
    for host, slots in hosts.items():
        if slots != layout.gpus_per_node:
            raise DsforgeError(
                "DSF041",
                f"{slots} slots, the recipe has cluster.gpus_per_node {layout.gpus_per_node}",
                Place(file, host=host),
                f"write slots={layout.gpus_per_node}, or change the recipe",
                exit_code=ExitCode.FINDINGS,
            )
