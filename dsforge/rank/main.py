"""`python -m dsforge.rank.main TRAINER_MODULE [ARGUMENTS]`: one a rank, the parent of its trainer.

With `--program` the trainer is the external program that program.json beside the plan names.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from pathlib import Path

from dsforge.base import oom
from dsforge.base.canonical import dump_line
from dsforge.base.exits import ExitCode, code_of_signal
from dsforge.base.files import append_line
from dsforge.base.lease import LeaseWatch
from dsforge.base.processes import identify, machine, signal_name
from dsforge.rank.identity import identity
from dsforge.rank.metrics import LogReader
from dsforge.rank.neighbours import start_guard
from dsforge.rank.output import OutputPump
from dsforge.rank.place import place_variables
from dsforge.rank.program import command, variables
from dsforge.rank.secrets import take_secrets
from dsforge.rank.stops import Stop, StopWatch
from dsforge.rank.trainer import Trainer
from dsforge.rank.world import RankWorld, difference_from_plan, read_world, stop_timeout_seconds
from dsforge.records import environment
from dsforge.records.program import FILE_NAME, read_program
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import ExitRecord, Heartbeat, WorldReport

HEARTBEAT_SECONDS = 5.0
PROGRAM = "--program"
_TICK_SECONDS = 0.2
_LATE_STOP_SECONDS = 0.5
_LAST_OUTPUT_SECONDS = 2.0
_ANSWERS = (0, ExitCode.TERMINATED, -signal.SIGTERM, -signal.SIGINT)
"""What a trainer returns that has done what it was asked to."""


def main(arguments: list[str]) -> int:
    """Run one trainer under watch and return the rank's exit code."""
    if not arguments:
        usage = "usage: python -m dsforge.rank.main TRAINER_MODULE [ARGUMENTS], or --program"
        return _refuse(usage, ExitCode.USAGE)
    lease_path = os.environ.get(environment.LEASE)
    attempt = AttemptDir(Path(os.environ.get(environment.ATTEMPT_DIR) or "dsforge-run/attempt-1").absolute())
    stops = StopWatch(Path(lease_path) if lease_path else None, attempt.stop_request)
    try:
        os.environ.update(identity(os.environ))
        world = read_world(os.environ)
    except ValueError as error:
        return _refuse(f"{error}; start ranks with the bundle's launch.sh", ExitCode.BEFORE_FIRST_STEP)
    try:
        attempt.path.mkdir(parents=True, exist_ok=True)
        if beginning := os.environ.get(environment.SECRETS):
            readers = int(os.environ.get("LOCAL_SIZE", "1"))
            os.environ.update(take_secrets(Path(f"{beginning}-{world.node}"), readers))
        if lease_path and world.local_rank == 0 and LeaseWatch(Path(lease_path)).is_far:
            start_guard(world.node, attempt.path)
        return _Rank(world, attempt, stops).run(arguments)
    except OSError as error:
        return _refuse(f"rank {world.rank}: {error}", ExitCode.ENVIRONMENT)


def _refuse(message: str, code: int) -> int:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"dsforge: {message}\n")
    return code


class _Rank:
    """One rank's life, from its world report to its exit record."""

    def __init__(self, world: RankWorld, attempt: AttemptDir, stops: StopWatch) -> None:
        self._world = world
        self._attempt = attempt
        self._stops = stops
        self._stream = attempt.rank_stream(world.node)
        self._memory = oom.watch(os.getpid())
        self._next_heartbeat = 0.0

    def run(self, arguments: list[str]) -> int:
        """Check the world, start the trainer, watch it; OSError when the run directory cannot be written."""
        plan = Path(os.environ.get(environment.PLAN, "plan.json"))
        patience_seconds = 0.0
        try:
            different = difference_from_plan(self._world, plan)
            patience_seconds = stop_timeout_seconds(plan)
        except (OSError, ValueError) as error:
            different = f"the plan cannot be read: {error}"
        if different is not None:
            code = int(ExitCode.BEFORE_FIRST_STEP)
            self._record_exit(code, "world_mismatch", message=different)
            return _refuse(different, code)
        try:
            environ = {**os.environ, **place_variables(plan, self._world.node, os.environ)}
        except (OSError, ValueError) as error:
            return self._refused(str(error))
        argv, reader = [sys.executable, "-u", "-m", *arguments], None
        if arguments == [PROGRAM]:
            try:
                program = read_program(plan.with_name(FILE_NAME))
                argv, added = command(program, environ), variables(program, environ)
            except (OSError, ValueError) as error:
                return self._refused(f"the program cannot be started: {error}")
            environ |= added
            reader = LogReader(program, self._attempt, self._world.rank)
        trainer = Trainer(argv, environ)
        pump = OutputPump(
            trainer.output,
            self._attempt.log(self._world.node),
            self._world.rank,
            echo=environment.LEASE not in os.environ,
            reader=reader.take if reader else None,
        )
        if reader:
            reader.start()
        pump.start()
        try:
            self._report(trainer)
            stop = self._watch(trainer, patience_seconds)
        except BaseException:
            trainer.kill_all()
            raise
        pump.join(_LAST_OUTPUT_SECONDS)
        if reader and trainer.return_code == 0:
            reader.end()
        return self._finish(trainer, pump, stop)

    def _refused(self, message: str) -> int:
        code = int(ExitCode.ENVIRONMENT)
        self._record_exit(code, "exception", message=message)
        return _refuse(message, code)

    def _report(self, trainer: Trainer) -> None:
        wrapper = identify(os.getpid())
        assert wrapper is not None, "this process runs"
        report = WorldReport(
            time=time.time(),
            rank=self._world.rank,
            local_rank=self._world.local_rank,
            world_size=self._world.world_size,
            host=socket.gethostname(),
            node=self._world.node,
            pid=wrapper.pid,
            pid_start=wrapper.start,
            trainer_pid=trainer.identity.pid,
            trainer_pid_start=trainer.identity.start,
            machine=machine(),
        )
        append_line(self._stream, dump_line(report.as_dict()))

    def _watch(self, trainer: Trainer, patience_seconds: float) -> Stop | None:
        """Watch to the end; return why the trainer was killed, None when it ended by itself."""
        asked = False
        while not trainer.ended.wait(_TICK_SECONDS):
            if (stop := self._stops.at_once(patience_seconds)) is not None:
                trainer.kill_all()
                trainer.ended.wait()
                return stop
            if self._stops.request is not None and not asked:
                asked = True
                trainer.send(signal.SIGTERM)
            self._beat()
        if trainer.return_code in (-signal.SIGTERM, -signal.SIGINT):
            # The deepspeed launcher signals children before parents: our own SIGTERM may be on its way.
            deadline = time.monotonic() + _LATE_STOP_SECONDS
            while self._stops.request is None and time.monotonic() < deadline:
                time.sleep(_TICK_SECONDS / 4)
        return None

    def _beat(self) -> None:
        if self._world.local_rank == 0 and time.monotonic() >= self._next_heartbeat:
            self._next_heartbeat = time.monotonic() + HEARTBEAT_SECONDS
            beat = Heartbeat(time=time.time(), node=self._world.node, rank=self._world.rank)
            try:
                append_line(self._stream, dump_line(beat.as_dict()))
            except OSError:
                # A full disk must not end a run that still trains; the time of change says it too.
                with contextlib.suppress(OSError):
                    os.utime(self._stream)

    def _finish(self, trainer: Trainer, pump: OutputPump, stop: Stop | None) -> int:
        returned = trainer.return_code
        tail = tuple(pump.tail)
        stop = stop or self._answered(trainer)
        if stop is not None:
            code = code_of_signal(stop.signal or signal.SIGTERM)
            self._record_exit(
                code,
                stop.cause,
                message=stop.message,
                signal_number=stop.signal,
                tail=tail,
                failed_at=stop.asked_at,
            )
        elif returned < 0:
            code = code_of_signal(-returned)
            self._record_exit(
                code,
                "signal",
                message=f"the trainer was ended by {signal_name(-returned)}",
                signal_number=-returned,
                tail=tail,
                failed_at=trainer.end_time,
            )
        elif returned > 0:
            code = returned
            self._record_exit(
                code,
                "exception",
                message=f"the trainer exited with {code}",
                tail=tail,
                failed_at=pump.failure_time or trainer.end_time,
            )
        else:
            code = 0
            self._record_exit(code, "ok", tail=tail)
        return code

    def _answered(self, trainer: Trainer) -> Stop | None:
        """Return the request that the trainer has ended by, this rank's or another's; None without one."""
        request = self._stops.request
        if request is not None and trainer.return_code in _ANSWERS:
            return request
        if trainer.return_code == ExitCode.TERMINATED:
            return Stop("stopped", None, "stopped with a rank that was told to", trainer.end_time)
        return None

    def _record_exit(
        self,
        code: int,
        cause: str,
        *,
        message: str | None = None,
        signal_number: int | None = None,
        tail: tuple[str, ...] = (),
        failed_at: float | None = None,
    ) -> None:
        record = ExitRecord(
            time=time.time(),
            rank=self._world.rank,
            code=code,
            cause=cause,
            signal=signal_number,
            message=message,
            tail=tail,
            failed_at=failed_at,
            oom_killed=code != 0 and self._memory.has_killed(),
        )
        append_line(self._stream, dump_line(record.as_dict()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
