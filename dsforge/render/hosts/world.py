"""The hosts against the plan: what is left of a hostfile after the recipe's choice is the planned world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.base.text import in_runs
from dsforge.plan.types import Layout, Plan
from dsforge.recipe.host_choice import Chosen, parse_choice
from dsforge.recipe.host_names import same
from dsforge.render.hosts.hostfile import Hosts

Gpus = dict[str, tuple[int, ...]]
"""The GPUs of each host, by the numbers that the host gives them."""
PlaceOf = Callable[[str], Place | None]
"""Where a key of the recipe stands."""
SPARES_FILE = "spares"
"""The hostfile of a bundle's spares, where there are any."""
_INCLUDE, _EXCLUDE = "cluster.include", "cluster.exclude"
_MOST_GPUS = 64
"""Beyond what a host has, so that more is a slip."""


@dataclass(frozen=True, slots=True)
class World:
    """The planned hosts with their ranks, in order. `gpus`: those that are chosen, None where it is all.

    `spares`: hosts that a restart may take.
    """

    hosts: Hosts
    gpus: Gpus | None = None
    spares: Hosts = field(default_factory=dict)


def planned_world(hosts: Hosts, plan: Plan, file: str, place_of: PlaceOf) -> World:
    """Return what the recipe chooses of the hosts.

    DsforgeError DSF090 where it chooses what is not there, DSF041 where the rest is not the planned world,
    DSF721 where its spares cannot stand for chosen GPUs.
    """
    if plan.include is None and plan.exclude is None:
        check_hosts(hosts, plan.layout, file, spares=plan.spares)
        return _world(hosts, plan)
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
    if all(count == hosts[host] for host, count in ranks.items()):
        return _world(ranks, plan)
    if plan.spares:
        raise DsforgeError(
            "DSF721",
            "cluster.spares stand for whole hosts, and GPUs of hosts are chosen",
            place_of("cluster.spares"),
            "choose whole hosts, or set cluster.spares=0",
            exit_code=ExitCode.FINDINGS,
        )
    return World(ranks, left)


def _world(hosts: Hosts, plan: Plan) -> World:
    """Return the first hosts as the planned ones, the rest as spares."""
    planned = dict(islice(hosts.items(), plan.layout.nodes))
    return World(planned, spares=dict(islice(hosts.items(), plan.layout.nodes, None)))


def _asked(
    text: str, hosts: Hosts, spelled: dict[str, str], key: str, file: str, place_of: PlaceOf
) -> dict[str, tuple[int, ...]]:
    """Return the GPUs that a choice names by host, in the hostfile's spelling."""
    asked: dict[str, tuple[int, ...]] = {}
    for one in parse_choice(text):
        host = spelled.get(same(one.host))
        if host is None:
            message = f"{key} names host `{one.host}`, which {file} does not"
            hint = "name hosts of the hostfile; `@` parts them, a user belongs in ~/.ssh/config"
            raise _fault(message, place_of(key), hint if "@" in text else "name hosts of the hostfile")
        gpus = tuple(range(hosts[host])) if one.gpus is None else one.gpus
        _check_gpus(one, hosts[host], key, place_of)
        if set(gpus) & set(asked.get(host, ())):
            raise _fault(f"{key} names host `{host}` twice", place_of(key), "name each host once")
        asked[host] = tuple(sorted((*asked.get(host, ()), *gpus)))
    return asked


def _check_gpus(one: Chosen, slots: int, key: str, place_of: PlaceOf) -> None:
    beyond = [gpu for gpu in one.gpus or () if gpu >= slots]
    if beyond:
        named = f"GPU{'s' if len(beyond) > 1 else ''} {in_runs(beyond)}"
        more = f", or write slots={beyond[-1] + 1} into the hostfile if the GPUs are there"
        raise _fault(
            f"{key} names {named} of `{one.host}`, which has slots 0 to {slots - 1}",
            place_of(key),
            f"choose below {slots}" + (more if beyond[-1] < _MOST_GPUS else ""),
        )


def _fault(message: str, place: Place | None, hint: str) -> DsforgeError:
    return DsforgeError("DSF090", message, place, hint, exit_code=ExitCode.FINDINGS)


def _check_left(left: Gpus, plan: Plan, place_of: PlaceOf) -> None:
    key = _INCLUDE if plan.include is not None else _EXCLUDE
    layout, needed = plan.layout, plan.layout.nodes + plan.spares
    if len(left) != needed:
        nodes = len(left) - plan.spares
        raise DsforgeError(
            "DSF041",
            f"{key} leaves {len(left)} hosts, the recipe has {_counted(layout, plan.spares)}",
            place_of(key),
            f"leave {needed} hosts" + (f", or set cluster.nodes={nodes}" if nodes > 0 else ""),
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


def _counted(layout: Layout, spares: int) -> str:
    return f"cluster.nodes {layout.nodes}" + (f" and cluster.spares {spares}" if spares else "")


def check_hosts(hosts: Hosts, layout: Layout, file: str, *, spares: int = 0) -> None:
    """Raise DsforgeError DSF041 unless the hosts are the planned nodes and spares with the planned slots."""
    needed, nodes = layout.nodes + spares, len(hosts) - spares
    if len(hosts) != needed:
        raise DsforgeError(
            "DSF041",
            f"{len(hosts)} hosts, the recipe has {_counted(layout, spares)}",
            Place(file),
            f"list {needed} hosts, choose them by cluster.include or cluster.exclude"
            + (f", or set cluster.nodes={nodes}" if nodes > 0 else ""),
            exit_code=ExitCode.FINDINGS,
        )
    for host, slots in hosts.items():
        if slots != layout.gpus_per_node:
            raise DsforgeError(
                "DSF041",
                f"{slots} slots, the recipe has cluster.gpus_per_node {layout.gpus_per_node}"
                + "".join(f"; {told}" for told in _uneven(hosts, layout)),
                Place(file, host=host),
                _slots_hint(hosts, layout),
                exit_code=ExitCode.FINDINGS,
            )


def _uneven(hosts: Hosts, layout: Layout) -> list[str]:
    """Return what ranks on every slot would do to the groups of a plan: TP ranks are consecutive."""
    told, world = [], sum(hosts.values())
    if world % (layout.tp * layout.pp * layout.cp):
        parts = f" x CP {layout.cp}" if layout.cp > 1 else ""
        degrees = f"TP {layout.tp} x PP {layout.pp}{parts}"
        told.append(f"all slots make {world} ranks, which {degrees} does not divide")
    names = list(hosts)
    for at, host in enumerate(names):
        if hosts[host] % layout.tp and len(names) > 1:
            first = max(0, at - 1)
            told.append(f"a TP group of {layout.tp} would span {names[first]} and {names[first + 1]}")
            break
    return told


def _slots_hint(hosts: Hosts, layout: Layout) -> str:
    slots = next(iter(hosts.values()))
    if layout.gpus_per_node == sum(hosts.values()) and len(hosts) > 1 and len(set(hosts.values())) == 1:
        return f"cluster.gpus_per_node counts the GPUs of one host: set it to {slots}"
    return f"write slots={layout.gpus_per_node}, or change the recipe"
