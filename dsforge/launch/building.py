"""Compiles kernels on all hosts of a run at once, over the connections by which they are looked at."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsforge.base.errors import Finding
from dsforge.launch import op_cache
from dsforge.launch.comparison.known import fault, warning
from dsforge.launch.hosts import host_environ, probe_command
from dsforge.launch.signals import StopSignals
from dsforge.launch.ssh import WIDTH
from dsforge.launch.talk import SilenceError, Talk
from dsforge.launch.types import LaunchRequest
from dsforge.records.probe import Build, Built, Locked, Locks

BUILD_SECONDS = 600.0
"""For all kernels of one host: a compiler of many files on few cores."""
_TICK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class HostBuild:
    """What was removed and compiled on a host, or why it gave no answer."""

    host: str
    built: Built | None = None
    silence: SilenceError | None = None


@dataclass(frozen=True, slots=True)
class Builds:
    """The kernels that a plan needs compiled, and what was done for them on every host."""

    needed: tuple[str, ...]
    hosts: tuple[HostBuild, ...]

    def findings(self) -> Iterator[Finding]:
        """Yield every kernel that a host could not build."""
        for one in self.hosts:
            if one.silence is not None:
                last = one.silence.words[-1] if one.silence.words else "no word of why"
                yield _failed(one.host, f"kernels are not built: it gave no answer: {last}")
            if one.built is not None and one.built.problem is not None:
                yield _failed(one.host, f"its folder of kernels cannot be used: {one.built.problem}")
            for kernel, why in (one.built.failed if one.built else {}).items():
                if kernel == op_cache.folder_of(op_cache.DISK):
                    yield fault("DSF802", one.host, f"{op_cache.NO_DISK}: {why}", op_cache.LIBAIO)
                else:
                    yield _failed(one.host, f"{kernel} cannot be built: {why}; PyTorch's own is used instead")


def _failed(host: str, message: str) -> Finding:
    hint = "`dsforge doctor` there shows its compilers; or share the folder with a host that has them"
    return warning("DSF740", host, message, hint)


def build_everywhere(request: LaunchRequest, hosts: Sequence[str]) -> Builds:
    """Clear the locks that no host's process holds, and build once a host what is not built there yet."""
    plan, environ = request.plan, {**request.environ, **request.extra_environ}
    ds_config = json.loads(request.bundle.files.get("ds_config.json", "{}"))
    needed = op_cache.needed_ops(plan.accelerator, ds_config)
    command = probe_command(plan, environ, BUILD_SECONDS)
    talks = {host: Talk(command(host), environ, BUILD_SECONDS) for host in hosts}
    builders = {op_cache.folder_of(name): op_cache.builder_of(name) for name in needed}
    folder = str(op_cache.ops_dir(request.environ))
    with StopSignals() as signals:
        done = asyncio.run(
            unless_stopped(build_on(talks, folder, builders, host_environ(plan, environ)), signals)
        )
    return Builds(needed, done)


async def unless_stopped(
    build: Coroutine[Any, Any, tuple[HostBuild, ...]], signals: StopSignals
) -> tuple[HostBuild, ...]:
    """Return what was built; DsforgeError DSF825 once a signal asks for an end, and all hosts were let go."""
    building = asyncio.ensure_future(build)
    while not building.done():
        await asyncio.wait({building}, timeout=_TICK_SECONDS)
        if signals.first is not None:
            building.cancel()
            await asyncio.wait({building})
            raise op_cache.stopped(signals.first)
    return building.result()


async def build_on(
    talks: Mapping[str, Talk], folder: str, builders: dict[str, str], environ: dict[str, str]
) -> tuple[HostBuild, ...]:
    """Build on every host that is talked to, none before all have said which locks they hold."""
    gate = asyncio.Semaphore(WIDTH)
    locked: dict[str, Locked] = {}
    done: dict[str, HostBuild] = {}

    async def look(host: str) -> None:
        async with gate:
            locked[host] = await talks[host].ask(Locks(folder, op_cache.KERNELS), Locked)

    async def build(host: str) -> None:
        # The folder may be one that hosts share: what another host's process has open is no stale lock.
        held = {lock for one in locked.values() for lock in one.held}
        stale = tuple(lock for lock in locked[host].stale if lock not in held)
        asked = Build(folder, builders, stale, environ, BUILD_SECONDS / max(1, len(builders)))
        done[host] = HostBuild(host, await talks[host].ask(asked, Built))

    try:
        for phase in (look, build):
            reached = [host for host in talks if host not in done]
            answers = await asyncio.gather(*map(phase, reached), return_exceptions=True)
            for host, answer in zip(reached, answers, strict=True):
                if isinstance(answer, SilenceError):
                    done[host] = HostBuild(host, silence=answer)
                elif answer is not None:
                    raise answer
        return tuple(done[host] for host in talks)
    finally:
        await asyncio.gather(*(talk.close() for talk in talks.values()))
