"""`python -m dsforge.launch.fan_out`: starts a launcher of ranks on every host of a hostfile over ssh.

Each host's output goes on, line by line, behind the host's name. The values of variables go through ssh's
stdin, which stays open: when this process ends, however it does, so does everything that it started.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.launch.ssh import LOST_CODE, WIDTH, make_room, ssh_command
from dsforge.rank.agent import READY, Job
from dsforge.recipe.host_choice import parse_choice
from dsforge.records import environment
from dsforge.render import torchrun
from dsforge.render.hosts import Gpus, parse_hostfile
from dsforge.render.hosts.engine import world_info
from dsforge.render.hosts.world import World

LOST = "^dsforge: lost the connection to {host}$"
_FAILED_SECONDS = 60.0
"""From the first host that fails to ending the others: they find out by themselves and say why."""


@dataclass(frozen=True, slots=True)
class Starter:
    """What starts the ranks of a host.

    `options`: from the hosts, and address and port where ranks meet. `node_option`: for the node it is.
    """

    module: str
    options: Callable[[Gpus, str, str], list[str]]
    node_option: str


def _deepspeed(hosts: Gpus, address: str, port: str) -> list[str]:
    info = world_info(hosts)
    return [f"--world_info={info}", f"--master_addr={address}", f"--master_port={port}", "--no_local_rank"]


def _torchrun(hosts: Gpus, address: str, port: str) -> list[str]:
    return torchrun.options(len(hosts), len(hosts[address]), address, port)


STARTERS = {
    "deepspeed": Starter("deepspeed.launcher.launch", _deepspeed, "--node_rank"),
    "torchrun": Starter(torchrun.MODULE, _torchrun, "--node-rank"),
}


class FanOut:
    """One launch over ssh: every host's connection, and the first code that is not 0."""

    def __init__(
        self, hosts: Gpus, *, starter: Starter, master_port: str, trainer: list[str], names: list[str]
    ) -> None:
        self._hosts = hosts
        self._starter = starter
        # The first host is where ranks meet.
        self._options = starter.options(hosts, next(iter(hosts)), master_port)
        self._trainer = trainer
        self._environ = {name: os.environ[name] for name in names if name in os.environ}
        self._gate = asyncio.Semaphore(WIDTH)
        self._failed = asyncio.Event()
        self.code = 0

    async def run(self) -> int:
        """Start all hosts and wait for all; return the first failing host's code, or 0."""
        tasks = [asyncio.create_task(self._host(node, host)) for node, host in enumerate(self._hosts)]
        watch = asyncio.create_task(self._end_after_failure(tasks))
        await asyncio.gather(*tasks, return_exceptions=True)
        watch.cancel()
        return self.code

    def command(self, host: str) -> list[str]:
        """Return what is run here for one host; nothing of the job stands in it."""
        arguments = os.environ.get(environment.SSH_ARGUMENTS, "")
        return ssh_command(host, "dsforge.rank.agent", os.environ, arguments)

    def job(self, node: int) -> Job:
        """Return what one host starts: the launcher of its ranks."""
        starter = self._starter
        argv = (
            *(sys.executable, "-u", "-m", starter.module, f"{starter.node_option}={node}", *self._options),
            *("--module", "dsforge.rank.main", *self._trainer),
        )
        return Job(argv, self._environ, str(Path.cwd()))

    async def _host(self, node: int, host: str) -> None:
        async with self._gate:
            process = await asyncio.create_subprocess_exec(
                *self.command(host),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                limit=2**20,
            )
            assert process.stdin is not None, "a pipe"
            assert process.stdout is not None, "a pipe"
            try:
                process.stdin.write(self.job(node).to_line().encode())
                await process.stdin.drain()
            except (BrokenPipeError, ConnectionResetError):
                pass  # its code and its words tell why
            started = False
            while not started and (line := await _line(process.stdout)):
                started = line == READY
                _say(f"{host}: {line}")
        try:
            while (line := await _line(process.stdout)) is not None:
                _say(f"{host}: {line}")
        except asyncio.CancelledError:
            process.stdin.close()
            await process.wait()
            raise
        code = await process.wait()
        if code == LOST_CODE:
            _say(f"dsforge: lost the connection to {host}")
        if code != 0:
            self.code = self.code or code
            self._failed.set()

    async def _end_after_failure(self, tasks: list[asyncio.Task[None]]) -> None:
        await self._failed.wait()
        await asyncio.sleep(_FAILED_SECONDS)
        for task in tasks:
            task.cancel()


async def _line(stream: asyncio.StreamReader) -> str | None:
    """Return the next line without its end, None after the last; one too long is cut into several."""
    try:
        raw = await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        raw = error.partial
    except asyncio.LimitOverrunError as error:
        raw = await stream.read(error.consumed)
    return raw.decode("utf-8", "replace").rstrip("\r\n") if raw else None


def _hosts(hostfile: Path, include: str | None) -> Gpus:
    """Return the GPUs of each host's ranks."""
    hosts = parse_hostfile(hostfile.read_text("utf-8"), str(hostfile))
    if include is None:
        return World(hosts).ranks()
    chosen = {one.host: one.gpus or () for one in parse_choice(include)}
    return {host: chosen[host] for host in hosts}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(words: list[str]) -> int:
    """Launch over ssh; return 0 when every host's launcher did."""
    parser = argparse.ArgumentParser(prog="python -m dsforge.launch.fan_out", description=__doc__)
    parser.add_argument("--hostfile", type=Path, required=True)
    parser.add_argument("--include", metavar="HOST:GPUS@...", help="the GPUs to use, of every host")
    parser.add_argument("--starter", choices=STARTERS, default="deepspeed")
    parser.add_argument("--master-port", required=True)
    parser.add_argument("--pass", dest="names", action="append", default=[], metavar="NAME")
    parser.add_argument("trainer", nargs="+")
    given = parser.parse_args(words)
    try:
        hosts = _hosts(given.hostfile, given.include)
        make_room(2 * len(hosts))
    except (OSError, ValueError, DsforgeError) as error:
        sys.stderr.write(f"dsforge: {error}\n")
        return int(ExitCode.ENVIRONMENT)
    if environment.LEASE in os.environ:
        # Supervised: whoever signals all processes of a job has told the supervisor too, which does the rest.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    fan_out = FanOut(
        hosts,
        starter=STARTERS[given.starter],
        master_port=given.master_port,
        trainer=given.trainer,
        names=given.names,
    )
    return asyncio.run(fan_out.run())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
