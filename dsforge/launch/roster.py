"""Which hosts an attempt runs on: those of the one before, with spares in the places of hosts that failed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Roster:
    """The hosts of an attempt by node, and those in reserve, in the order in which they are taken.

    `failed`: hosts that others stand for; they are taken again when nothing else is left. `order`: of all
    hosts, where a scheduler numbers them; elsewhere a spare takes its node's number from the host before it.
    """

    hosts: tuple[str, ...]
    spares: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    order: tuple[str, ...] | None = None

    def without(self, blamed: Collection[str]) -> Roster:
        """Return the hosts without those that failed, as far as others are left to stand for them."""
        spares = [host for host in self.spares if host not in blamed]
        again = [host for host in self.failed if host not in blamed]
        reserve = [*spares, *again]
        hosts, failed = [], [host for host in self.spares if host in blamed]
        for host in self.hosts:
            if host in blamed and reserve:
                failed.append(host)
                hosts.append(reserve.pop(0))
            else:
                hosts.append(host)
        if self.order is not None:
            hosts.sort(key=self.order.index)
        return Roster(
            hosts=tuple(hosts),
            spares=tuple(host for host in spares if host in reserve),
            failed=tuple(dict.fromkeys([*(host for host in self.failed if host not in hosts), *failed])),
            order=self.order,
        )
