"""`python -m dsforge.launch.fan_out`: starts a launcher of ranks on every host of a hostfile over ssh.

Each host's output goes on, line by line, behind the host's name. The values of variables go through ssh's
stdin, which stays open: when this process ends, however it does, so does everything that it started.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from dsforge.base import shell
from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.rank.agent import READY, Job
from dsforge.records import environment
from dsforge.render.hosts import Hosts, parse_hostfile

WIDTH = 64
"""Hosts that are being reached at a time; the others wait until these have started."""
LOST = "^dsforge: lost the connection to {host}$"
_SSH_LOST = 255
_OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=20",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
)
_FAILED_SECONDS = 60.0
"""From the first host that fails to ending the others: they find out by themselves and say why."""


def _deepspeed(hosts: Hosts, node: int, meeting: tuple[str, str]) -> list[str]:
    world = json.dumps({host: list(range(slots)) for host, slots in hosts.items()})
    return [
        "deepspeed.launcher.launch",
        f"--world_info={base64.urlsafe_b64encode(world.encode()).decode()}",
        f"--node_rank={node}",
        f"--master_addr={meeting[0]}",
        f"--master_port={meeting[1]}",
        "--no_local_rank",
        "--module",
    ]


def _torchrun(hosts: Hosts, node: int, meeting: tuple[str, str]) -> list[str]:
    # Its other rendezvous (c10d) numbers the hosts itself; the plan has them in the hostfile's order.
    return [
        "torch.distributed.run",
        f"--nnodes={len(hosts)}",
        f"--node-rank={node}",
        f"--nproc-per-node={list(hosts.values())[node]}",
        f"--master-addr={meeting[0]}",
        f"--master-port={meeting[1]}",
        "--max-restarts=0",
        "--module",
    ]


STARTERS: dict[str, Callable[[Hosts, int, tuple[str, str]], list[str]]] = {
    "deepspeed": _deepspeed,
    "torchrun": _torchrun,
}
"""What starts the ranks of a host: from the hosts, the node's number, and the address and port where ranks
meet, to a module and its arguments, the program of the ranks to follow."""


class FanOut:
    """One launch over ssh: every host's connection, and the first code that is not 0."""

    def __init__(
        self, hosts: Hosts, *, starter: str, master_port: str, trainer: list[str], names: list[str]
    ) -> None:
        self._hosts = hosts
        self._starter = STARTERS[starter]
        self._meeting = (next(iter(hosts)), master_port)
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
        python_path = os.environ.get("PYTHONPATH")
        path = [f"PYTHONPATH={python_path}"] if python_path else []
        remote = shell.join(["env", *path, sys.executable, "-u", "-m", "dsforge.rank.agent"])
        options = [word for option in _OPTIONS for word in ("-o", option)]
        extra = shlex.split(os.environ.get(environment.SSH_ARGUMENTS, ""))
        return ["ssh", "-T", *extra, *options, "--", host, f"exec {remote}"]

    def job(self, node: int) -> Job:
        """Return what one host starts: the launcher of its ranks."""
        words = self._starter(self._hosts, node, self._meeting)
        argv = (sys.executable, "-u", "-m", *words, "dsforge.rank.main", *self._trainer)
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
        if code == _SSH_LOST:
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


def main(words: list[str]) -> int:
    """Launch over ssh; return 0 when every host's launcher did."""
    parser = argparse.ArgumentParser(prog="python -m dsforge.launch.fan_out", description=__doc__)
    parser.add_argument("--hostfile", type=Path, required=True)
    parser.add_argument("--starter", choices=STARTERS, default="deepspeed")
    parser.add_argument("--master-port", required=True)
    parser.add_argument("--pass", dest="names", action="append", default=[], metavar="NAME")
    parser.add_argument("trainer", nargs="+")
    given = parser.parse_args(words)
    try:
        hosts = parse_hostfile(given.hostfile.read_text("utf-8"), str(given.hostfile))
    except (OSError, DsforgeError) as error:
        sys.stderr.write(f"dsforge: {error}\n")
        return int(ExitCode.ENVIRONMENT)
    if environment.LEASE in os.environ:
        # Supervised: whoever signals all processes of a job has told the supervisor too, which does the rest.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    fan_out = FanOut(
        hosts,
        starter=given.starter,
        master_port=given.master_port,
        trainer=given.trainer,
        names=given.names,
    )
    return asyncio.run(fan_out.run())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
