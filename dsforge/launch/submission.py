"""The moment at which a scheduler takes a job: whatever comes between, the run says what became of it."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dsforge.base import processes
from dsforge.base.batch import BatchError, Scheduler, UnsureError
from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode, ExitKind
from dsforge.base.files import write_atomically
from dsforge.launch.cause import asked_to_stop
from dsforge.launch.signals import StopSignals
from dsforge.plan.types import Plan
from dsforge.records.reasons import Reason
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import QUEUED, RunExit, RunState, write_state

_ASKS = {"slurm": "`sinfo` and `sacctmgr show assoc`", "pbs": "`qstat -Qf` and `pbsnodes -a`"}


class Submission:
    """One run on its way to a scheduler. A job that it has ended before starts nothing."""

    def __init__(self, scheduler: Scheduler, run_dir: RunDir, plan: Plan, signals: StopSignals) -> None:
        """Take where the run goes, its folder, its plan and the signals collected meanwhile."""
        self.run_dir = run_dir
        self._signals = signals
        self._scheduler = scheduler
        self._job: str | None = None
        submitter = processes.identify(os.getpid())
        assert submitter is not None, "this process runs"
        self._state = RunState(
            run_id=run_dir.path.name,
            name=plan.name,
            state=QUEUED,
            attempt=1,
            host=socket.gethostname(),
            boot_id=processes.boot_id(),
            supervisor=submitter,
            started_time=time.time(),
            trainer=plan.trainer,
        )

    def begin(self) -> None:
        """Write down that the run is queued; OSError."""
        write_state(self.run_dir.state, self._state)

    def submit(self, command: Sequence[str], environ: Mapping[str, str]) -> str:
        """Submit the job and return its id, written down; OSError, DsforgeError DSF241, DSF248, DSF247."""
        self.obey()
        try:
            self._job = self._scheduler.submit(command, environ)
        except UnsureError as error:
            self.obey(f"it may have been submitted: {error}")
            raise self._unsure(error) from error
        except BatchError as error:
            self.obey()
            raise self._refused(error) from error
        write_atomically(self.run_dir.job_file(self._scheduler.launcher), f"{self._job}\n")
        return self._job

    def obey(self, unsure: str = "") -> None:
        """Cancel the job and raise DsforgeError DSF247 where a signal asks for the run's end; OSError."""
        if self._signals.first is not None:
            raise self._stopped(self._signals.first, unsure)

    def give_up(self, error: OSError) -> None:
        """Leave neither a job nor secrets behind where the disk refuses, as far as that can be done."""
        why = f"a file of the run cannot be written: {error}; {self._cancel()}"
        with contextlib.suppress(OSError):
            self._end("failed", RunExit(int(ExitCode.ENVIRONMENT), ExitKind.ENVIRONMENT.value, why))

    def _stopped(self, number: int, unsure: str) -> DsforgeError:
        cause = replace(asked_to_stop(number, None), reason=Reason.STOPPED)
        message = f"{cause.message} while its job was submitted; {unsure or self._cancel()}"
        self._end("stopped", replace(cause, message=message).as_exit(stepped=False))
        code = ExitCode.INTERRUPTED if cause.kind == ExitKind.INTERRUPTED else ExitCode.TERMINATED
        return self._error("DSF247", f"the run was {message}", self._ways if unsure else "", code)

    def _unsure(self, error: UnsureError) -> DsforgeError:
        # Queued still, and its secrets are kept: the job would need them.
        message = f"{self._scheduler.name} may have taken the job, and may not: {error}"
        how = RunExit(int(ExitCode.ENVIRONMENT), ExitKind.ENVIRONMENT.value, message)
        write_state(self.run_dir.state, replace(self._state, exit=how))
        return self._error("DSF248", message, self._ways, ExitCode.ENVIRONMENT)

    def _refused(self, error: BatchError) -> DsforgeError:
        self._end("failed", RunExit(int(ExitCode.ENVIRONMENT), ExitKind.ENVIRONMENT.value, str(error)))
        launcher = self._scheduler.launcher
        return self._error(
            "DSF241",
            f"{self._scheduler.name} did not take the job: {error}",
            f"compare what launch.{launcher} asks for with {_ASKS[launcher]}",
            ExitCode.ENVIRONMENT,
        )

    def _cancel(self) -> str:
        """Cancel the job if there is one and return in words what that did."""
        if self._job is None:
            return "there is no job"
        job = f"{self._scheduler.name} job {self._job}"
        try:
            self._scheduler.cancel(self._job)
        except BatchError as error:
            kill = f"`{self._scheduler.kill} {self._job}`"
            return f"{job} could not be cancelled ({error}), and starts nothing; {kill} cancels it"
        return f"{job} is cancelled"

    def _end(self, word: str, how: RunExit) -> None:
        self.run_dir.job_secrets.unlink(missing_ok=True)
        write_state(self.run_dir.state, replace(self._state, state=word, exit=how, ended_time=time.time()))

    @property
    def _ways(self) -> str:
        stop = f"dsforge runs stop {self.run_dir.path.name}"
        return f"`{self._scheduler.listing}` shows your jobs; `{stop}` keeps it from starting"

    def _error(self, code: str, message: str, hint: str, exit_code: ExitCode) -> DsforgeError:
        return DsforgeError(code, message, Place(file=str(self.run_dir.path)), hint, exit_code)
