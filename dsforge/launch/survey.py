"""Asks all hosts of a run about themselves at once: what each is, and whether they reach each other."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dsforge.launch.ssh import WIDTH
from dsforge.launch.talk import SilenceError, Talk
from dsforge.records.probe import (
    Clock,
    HostFacts,
    Listen,
    Listening,
    Question,
    Reach,
    Reached,
    Target,
    Time,
)

_CONNECT_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class Seen:
    """What is known of the host of a node; `silence`: why it did not answer, or not to the end.

    `offset_seconds`: its clock less ours, known to half of `round_trip_seconds`. `faults`: why it could not
    reach a host, by that host's name; `meeting_fault`: the same of the place where ranks meet.
    """

    host: str
    node: int
    facts: HostFacts | None = None
    silence: SilenceError | None = None
    listening: Listening | None = None
    offset_seconds: float = 0.0
    round_trip_seconds: float = 0.0
    meeting_fault: str | None = None
    faults: dict[str, str] = field(default_factory=dict)
    noise: tuple[str, ...] = ()


def survey(
    hosts: Sequence[str],
    command: Callable[[str], Sequence[str]],
    environ: Mapping[str, str],
    question: Question,
    ports: Sequence[int],
    seconds: float,
) -> list[Seen]:
    """Return what is known of every host, in order; no answer takes longer than `seconds`.

    `command`: what runs the probe on a host, with `environ` here. `ports`: where the ranks may meet on the
    first host.
    """
    return asyncio.run(_Survey(hosts, command, environ, question, tuple(ports), seconds).run())


class _Survey:
    def __init__(
        self,
        hosts: Sequence[str],
        command: Callable[[str], Sequence[str]],
        environ: Mapping[str, str],
        question: Question,
        ports: tuple[int, ...],
        seconds: float,
    ) -> None:
        self._seen = [Seen(host, node) for node, host in enumerate(hosts)]
        self._talks = {host: Talk(command(host), environ, seconds) for host in hosts}
        self._question = question
        self._ports = ports
        self._connect_seconds = min(_CONNECT_SECONDS, seconds / 2)
        self._gate = asyncio.Semaphore(WIDTH)
        self._words = {host: secrets.token_hex(16) for host in hosts}

    async def run(self) -> list[Seen]:
        try:
            for phase in (self._look, self._listen, self._reach):
                await asyncio.gather(*(self._guarded(phase, seen) for seen in self._seen))
        finally:
            await asyncio.gather(*(talk.close() for talk in self._talks.values()))
        for seen in self._seen:
            seen.noise = tuple(self._talks[seen.host].noise)
        return self._seen

    async def _guarded(self, phase: Callable[[Seen], object], seen: Seen) -> None:
        if seen.silence is None:
            try:
                await phase(seen)  # type: ignore[misc]  # the phases below
            except SilenceError as silence:
                seen.silence = silence

    async def _look(self, seen: Seen) -> None:
        async with self._gate:
            seen.facts = await self._talks[seen.host].ask(self._question, HostFacts)

    async def _listen(self, seen: Seen) -> None:
        assert seen.facts is not None, "it has answered"
        ports = self._ports if seen is self._seen[0] else ()
        asked = Listen(_outward(seen.facts.announced.address), ports, self._words[seen.host])
        seen.listening = await self._talks[seen.host].ask(asked, Listening)

    async def _reach(self, seen: Seen) -> None:
        talk = self._talks[seen.host]
        begun = time.time()
        clock = await talk.ask(Clock(), Time)
        seen.round_trip_seconds = time.time() - begun
        seen.offset_seconds = clock.time - begun - seen.round_trip_seconds / 2
        meeting, neighbour = self._meeting(), self._neighbour(seen)
        targets = [target for target in (meeting, neighbour and neighbour[1]) if target is not None]
        if not targets:
            return
        reached = await talk.ask(Reach(tuple(targets), self._connect_seconds), Reached)
        faults = list(reached.faults)
        if meeting is not None and faults:
            seen.meeting_fault = faults.pop(0)
        if neighbour is not None and faults and (fault := faults.pop(0)) is not None:
            seen.faults[neighbour[0]] = fault

    def _meeting(self) -> Target | None:
        first = self._seen[0]
        there = first.listening
        # Where the port for the ranks is taken, another one shows whether they would find the host at all.
        port = (there.meeting_port or there.port) if there is not None else None
        return Target(self._question.master, port, self._words[first.host]) if port else None

    def _neighbour(self, seen: Seen) -> tuple[str, Target] | None:
        """Return the host behind this one, in a ring: all together, each one's address is tried once."""
        other = self._seen[(seen.node + 1) % len(self._seen)]
        if other is seen or other.facts is None or other.listening is None or other.listening.port is None:
            return None
        address = other.facts.announced.address
        assert address is not None, "it listens there"
        return other.host, Target(address, other.listening.port, self._words[other.host])


def _outward(address: str | None) -> str | None:
    return None if address is None or is_loopback(address) else address


def is_loopback(address: str) -> bool:
    """Tell whether an address is of its own host alone."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address).is_loopback
    return False
