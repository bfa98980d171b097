"""Ends what a run left behind when nobody supervises it any more, on every host that it ran on."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dsforge.base.canonical import loads
from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode, ExitKind, code_of_signal
from dsforge.base.lease import EXPIRY_SECONDS, LeaseWatch
from dsforge.launch import machine
from dsforge.launch.launchers import LAUNCHERS
from dsforge.launch.ssh import WIDTH, ssh_command
from dsforge.launch.talk import SilenceError, Talk
from dsforge.records.probe import End, Ended
from dsforge.records.reasons import Reason
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import ACTIVE_STATES, QUEUED, RunExit, RunState, write_state
from dsforge.runs.jobs import job_of
from dsforge.runs.reading import read_hosts
from dsforge.runs.reaper import KILL_SECONDS, RANK_SECONDS, end_here, question
from dsforge.runs.registry import state_or_fail, summarise
from dsforge.runs.stop import Rest, StopResult, check_unsupervised, stop_run

_ANSWER_SECONDS = 30.0 + RANK_SECONDS + KILL_SECONDS
_SIGKILL = 9
_TICK_SECONDS = 0.5
_MODULE = "dsforge.runs.reaper"


@dataclass(frozen=True, slots=True)
class Reaped:
    """What was left of a run. `hosts`: by host what was ended there; `silent`: why others did not answer.

    The host that this runs on goes by its own name.
    """

    run_id: str
    hosts: dict[str, Ended]
    silent: dict[str, str]

    @property
    def is_clean(self) -> bool:
        """Tell whether nothing is left on any host, as far as all have answered."""
        return not self.silent and not any(ended.left for ended in self.hosts.values())

    @property
    def words(self) -> str:
        """What happened, host by host where there was anything."""
        told = [
            f"{ended.found} processes ended on {host}" for host, ended in self.hosts.items() if ended.found
        ]
        told += [
            f"{ended.left} could not be ended on {host}" for host, ended in self.hosts.items() if ended.left
        ]
        told += [f"{host} did not answer ({why})" for host, why in self.silent.items()]
        return "; ".join(told) or "nothing was left of it"


def reap(run_dir: RunDir, environ: Mapping[str, str]) -> Reaped:
    """End what is left of a run; DsforgeError DSF722 where it is supervised, or may be.

    A run that was lost counts as failed once all of its hosts have answered and nothing is left.
    """
    state = state_or_fail(run_dir)
    _check_lost(run_dir, state)
    here = {socket.gethostname(): end_here(question(run_dir))}
    elsewhere, silent = _end_elsewhere(run_dir, environ)
    reaped = Reaped(run_dir.path.name, here | elsewhere, silent)
    if state.state in ACTIVE_STATES and reaped.is_clean:
        message = f"the supervisor (dsforge launch, pid {state.supervisor.pid}) died; {reaped.words}"
        code = code_of_signal(_SIGKILL)
        how = RunExit(code, ExitKind.LAUNCHER_DIED.value, message, reason=Reason.LAUNCHER.value)
        write_state(run_dir.state, replace(state, state="failed", ended_time=time.time(), exit=how))
    return reaped


def stop(run_dir: RunDir, environ: Mapping[str, str], *, at_once: bool) -> StopResult:
    """Stop a run; where its supervisor is dead, also what is left of it on other hosts. DsforgeError."""

    def elsewhere(run_dir: RunDir) -> Rest:
        reaped = Reaped(run_dir.path.name, *_end_elsewhere(run_dir, environ))
        is_nothing = reaped.is_clean and not any(one.found for one in reaped.hosts.values())
        return Rest("" if is_nothing else f"; {reaped.words}", reaped.is_clean)

    return stop_run(run_dir, at_once=at_once, elsewhere=elsewhere)


def _check_lost(run_dir: RunDir, state: RunState) -> None:
    summary = summarise(run_dir)
    is_elsewhere = state.host != socket.gethostname() and job_of(run_dir) is None
    alive = summary.state in (*ACTIVE_STATES, QUEUED)
    if alive and not (is_elsewhere and not _is_held_elsewhere(run_dir)):
        raise DsforgeError(
            "DSF722",
            f"run {summary.run_id} is {summary.state}, and its supervisor lives",
            Place(host=state.host),
            f"`dsforge runs stop {summary.run_id}` ends it",
            exit_code=ExitCode.FINDINGS,
        )
    check_unsupervised(run_dir, state)


def _is_held_elsewhere(run_dir: RunDir) -> bool:
    """Tell whether a supervisor on another host still counts in the run's lease."""
    watch = LeaseWatch(run_dir.lease)
    deadline = time.monotonic() + EXPIRY_SECONDS + 1.0
    before = _text(run_dir)
    while watch.is_held() and time.monotonic() < deadline:
        if _text(run_dir) != before:
            return True
        time.sleep(_TICK_SECONDS)
    return watch.is_held()


def _text(run_dir: RunDir) -> bytes:
    try:
        return run_dir.lease.read_bytes()
    except OSError:
        return b""


def _end_elsewhere(run_dir: RunDir, environ: Mapping[str, str]) -> tuple[dict[str, Ended], dict[str, str]]:
    """End what is left of a run where ssh reaches; return what was ended, and who was silent."""
    variable = _ssh_variable(run_dir)
    hosts = dict.fromkeys(
        host for number in run_dir.attempts() for host in read_hosts(run_dir.attempt(number))
    )
    if variable is None or not hosts:
        return {}, {}
    path = machine.python_path(environ)
    environ = environ if path is None else {**environ, "PYTHONPATH": path}
    commands = {host: ssh_command(host, _MODULE, environ, environ.get(variable, "")) for host in hosts}
    return asyncio.run(_end_all(commands, environ, question(run_dir)))


def _ssh_variable(run_dir: RunDir) -> str | None:
    try:
        name = loads((run_dir.bundle / "plan.json").read_text("utf-8"))["launch"]["launcher"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return LAUNCHERS[name].ssh if name in LAUNCHERS else None


async def _end_all(
    commands: Mapping[str, Sequence[str]], environ: Mapping[str, str], asked: End
) -> tuple[dict[str, Ended], dict[str, str]]:
    gate = asyncio.Semaphore(WIDTH)
    ended: dict[str, Ended] = {}
    silent: dict[str, str] = {}

    async def end(host: str) -> None:
        async with gate:
            talk = Talk(commands[host], environ, _ANSWER_SECONDS)
            try:
                ended[host] = await talk.ask(asked, Ended)
            except SilenceError as silence:
                silent[host] = silence.words[-1] if silence.words else f"code {silence.code}"
            finally:
                await talk.close()

    await asyncio.gather(*map(end, commands))
    return ended, silent
