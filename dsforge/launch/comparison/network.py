"""DSF266 to DSF270: the addresses that ranks will give each other, and whether they lead anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dsforge.base.errors import Finding
from dsforge.launch.comparison.known import Known, fault
from dsforge.launch.survey import Seen, is_loopback
from dsforge.records.probe import HostFacts


def check(known: Known) -> Iterator[Finding]:
    """Yield hosts whose ranks would not find the others."""
    several = len(known.seen) > 1
    # Whoever does not reach the first host, or has the wrong interface, is named for that, and nobody can be
    # expected to reach it.
    unusable = {seen.host for seen in known.seen if seen.meeting_fault is not None}
    for host, facts in known.answered():
        own = list(_announced(known, host, facts)) if several else []
        unusable |= {host} if own else set()
        yield from own
    yield from _meeting(known)
    for seen in known.seen:
        for other, why in seen.faults.items():
            if not {seen.host, other} & unusable:
                yield _not_reached(known, seen, other, why)


def _announced(known: Known, host: str, facts: HostFacts) -> Iterator[Finding]:
    chosen = facts.announced
    if chosen.missing:
        names = ", ".join(chosen.missing)
        there = ", ".join(one.name for one in facts.interfaces if one.addresses) or "none"
        yield fault(
            "DSF266",
            host,
            f"{chosen.variable}={chosen.value} names {names}, which it does not have; it has {there}",
            _choice(known, chosen.variable),
        )
    elif chosen.address is None:
        yield fault("DSF266", host, "it has no interface with an address", "`ip address` there shows them")
    elif is_loopback(chosen.address):
        why = (
            f"{chosen.variable}={chosen.value} is its loopback"
            if chosen.value
            else f"{chosen.variable} is not set, and its own name {facts.host} leads to no other address"
        )
        yield fault(
            "DSF267",
            host,
            f"its ranks would give {chosen.address} as their address, which no other host reaches: {why}",
            _choice(known, chosen.variable),
        )


def _choice(known: Known, variable: str) -> str:
    """Return the edit that has every host use the interface by which it reaches the first."""
    routes = Counter(
        facts.route for _, facts in known.answered() if facts.route and facts.route != "lo"
    ).most_common()
    if variable == "cluster.interface":
        return "name the interface, or a network in which every host has an address"
    if not routes:
        return f"set launch.env.{variable} to an interface that every host has and that leads to the others"
    if len(routes) == 1:
        return f"launch.env.{variable}={routes[0][0]}"
    names = ",".join(sorted(name for name, _ in routes))
    if variable.startswith("NCCL"):
        return f"launch.env.{variable}={names}"
    return (
        f"hosts reach the first by {names}, and gloo takes only names that all have: take {variable} out of "
        "launch.env, and set cluster.interface=auto"
    )


def _meeting(known: Known) -> Iterator[Finding]:
    first = known.seen[0]
    if first.listening is not None and first.listening.meeting_port is None:
        if known.port is not None:
            yield fault(
                "DSF270",
                first.host,
                f"port {known.port}, where the ranks would meet, is in use",
                f"MASTER_PORT={known.port + 1 if known.port < 65_535 else known.port - 1}, or unset it: then "
                f"a free one is chosen; `ss -ltnp 'sport = :{known.port}'` there shows who has it",
            )
        else:
            hint = "`ss -ltn` there shows them"
            yield fault("DSF270", first.host, "none of the ports that were tried is free", hint)
    for seen in known.seen:
        if seen.meeting_fault is not None and seen.facts is not None:
            yield _no_meeting(known, seen, seen.facts, seen.meeting_fault)


def _no_meeting(known: Known, seen: Seen, facts: HostFacts, why: str) -> Finding:
    master, first = known.question.master, known.seen[0]
    if not facts.master_addresses:
        return fault(
            "DSF269",
            seen.host,
            f"the name of the first host, {master}, does not resolve there",
            f"add {master} to DNS or its /etc/hosts, or name the first host by its address in the hostfile",
        )
    if any(map(is_loopback, facts.master_addresses)) and seen is not first:
        return fault(
            "DSF269",
            seen.host,
            f"{master}, the first host, leads to {facts.master_addresses[0]} there, which is itself",
            f"take {master} out of the 127.* lines of its /etc/hosts",
        )
    also = "".join(
        f"; {address} is an address of its own, too"
        for address in facts.master_addresses
        if seen is not first and any(address in one.addresses for one in facts.interfaces)
    )
    return fault(
        "DSF269",
        seen.host,
        f"it does not reach {master} ({facts.master_addresses[0]}), where the ranks meet: {why}{also}",
        f"mend its route or firewall: `ip route get {facts.master_addresses[0]}` there",
    )


def _not_reached(known: Known, seen: Seen, other: str, why: str) -> Finding:
    there = next(facts.announced for host, facts in known.answered() if host == other)
    return fault(
        "DSF268",
        seen.host,
        f"it does not reach {there.address}, the address that ranks on {other} would give: {why}",
        f"mend its route or firewall, or choose another interface: launch.env.{there.variable}",
    )
