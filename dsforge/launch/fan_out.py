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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.launch.ssh import LOST_CODE, WIDTH, make_room, ssh_command
from dsforge.rank.agent import READY, Job
from dsforge.records import environment
from dsforge.render.hosts import Hosts, parse_hostfile
from dsforge.render.hosts.engine import world_info

LOST = "^dsforge: lost the connection to {host}$"
_FAILED_SECONDS = 60.0
"""From the first host that fails to ending the others: they find out by themselves and say why."""


@dataclass(frozen=True, slots=True)
class Starter:
    """What starts the ranks of a host.

    `options`: from the hosts, address and port where ranks meet, and the run's name, the same on every host.
    `of_node`: those of one, from its number and name. `numbers_hosts`: it gives hosts numbers of its own, so
    that ranks are told the plan's.
    """

    module: str
    options: Callable[[Hosts, str, str, str], list[str]]
    of_node: Callable[[int, str], list[str]]
    numbers_hosts: bool = False


def _deepspeed(hosts: Hosts, address: str, port: str, _run: str) -> list[str]:
    info = world_info(hosts)
    return [f"--world_info={info}", f"--master_addr={address}", f"--master_port={port}", "--no_local_rank"]


def _counts(hosts: Hosts, address: str) -> list[str]:
    return [f"--nnodes={len(hosts)}", f"--nproc-per-node={hosts[address]}"]


def _torchrun(hosts: Hosts, address: str, port: str, _run: str) -> list[str]:
    meeting = [f"--master-addr={address}", f"--master-port={port}"]
    return [*_counts(hosts, address), *meeting, "--max-restarts=0"]


def _c10d(hosts: Hosts, address: str, port: str, run: str) -> list[str]:
    # By the run's name: what is left of another one's agents does not join it.
    endpoint = [f"--rdzv-endpoint={address}:{port}", f"--rdzv-id={run}"]
    return [*_counts(hosts, address), "--rdzv-backend=c10d", *endpoint, "--max-restarts=0"]


STARTERS = {
    "deepspeed": Starter("deepspeed.launcher.launch", _deepspeed, lambda node, _: [f"--node_rank={node}"]),
    "torchrun": Starter("torch.distributed.run", _torchrun, lambda node, _: [f"--node-rank={node}"]),
    "torchrun-c10d": Starter(
        "torch.distributed.run",
        _c10d,
        # Said, not found out: a host need not know its name as the hostfile has it, nor others its own name.
        lambda node, host: [f"--rdzv-conf=is_host={int(node == 0)}", f"--local-addr={host}"],
        numbers_hosts=True,
    ),
}


class FanOut:
    """One launch over ssh: every host's connection, and the first code that is not 0."""

    def __init__(self, hosts: Hosts, given: Given, environ: Mapping[str, str], cwd: str) -> None:
        """Take what was asked for, all variables that are there, and where the hosts' launchers start."""
        self._hosts = hosts
        self._starter = STARTERS[given.starter]
        run = environ.get(environment.RUN_ID) or "by-hand"
        # The first host is where ranks meet.
        self._options = self._starter.options(hosts, next(iter(hosts)), given.master_port, run)
        self._trainer = given.trainer
        self._environ = environ
        self._handed = {name: environ[name] for name in given.names if name in environ}
        self._cwd = cwd
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
        arguments = self._environ.get(environment.SSH_ARGUMENTS, "")
        return ssh_command(host, "dsforge.rank.agent", self._environ, arguments)

    def job(self, node: int, host: str) -> Job:
        """Return what one host starts: the launcher of its ranks."""
        starter = self._starter
        own = starter.of_node(node, host)
        argv = (
            *(sys.executable, "-u", "-m", starter.module, *own, *self._options),
            *("--module", "dsforge.rank.main", *self._trainer),
        )
        number = {environment.NODE: str(node)} if starter.numbers_hosts else {}
        return Job(argv, {**self._handed, **number}, self._cwd)

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
                process.stdin.write(self.job(node, host).to_line().encode())
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


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line asks for. `names`: the variables that the hosts are given."""

    hostfile: Path
    master_port: str
    trainer: tuple[str, ...]
    starter: str = "deepspeed"
    names: tuple[str, ...] = ()


def read_words(words: Sequence[str]) -> Given:
    """Return what a command line asks for; SystemExit for one that asks for nothing there is."""
    parser = argparse.ArgumentParser(prog="python -m dsforge.launch.fan_out", description=__doc__)
    parser.add_argument("--hostfile", type=Path, required=True)
    parser.add_argument("--starter", choices=STARTERS, default="deepspeed")
    parser.add_argument("--master-port", required=True)
    parser.add_argument("--pass", dest="names", action="append", default=[], metavar="NAME")
    parser.add_argument("trainer", nargs="+")
    given = parser.parse_args(words)
    return Given(given.hostfile, given.master_port, tuple(given.trainer), given.starter, tuple(given.names))


def main(words: list[str]) -> int:
    """Launch over ssh; return 0 when every host's launcher did."""
    given = read_words(words)
    try:
        hosts = parse_hostfile(given.hostfile.read_text("utf-8"), str(given.hostfile))
        make_room(2 * len(hosts))
    except (OSError, ValueError, DsforgeError) as error:
        sys.stderr.write(f"dsforge: {error}\n")
        return int(ExitCode.ENVIRONMENT)
    if environment.LEASE in os.environ:
        # Supervised: whoever signals all processes of a job has told the supervisor too, which does the rest.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    return asyncio.run(FanOut(hosts, given, os.environ, str(Path.cwd())).run())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
