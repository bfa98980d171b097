"""The trainer process: started in a session of its own, so that it and its workers end together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from dsforge.base import prctl
from dsforge.base.processes import ProcessId, identify


class Trainer:
    """One trainer. `ended` is set once it is dead, whatever is left of its workers is then killed."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        """Start the trainer; OSError when the program cannot be started.

        Call from the main thread only: the kernel ties the parent-death signal to the starting thread.
        """
        self.output, write_end = os.pipe()
        self.ended = threading.Event()
        self.end_time = 0.0
        try:
            self._process = subprocess.Popen(
                list(argv),
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                start_new_session=True,
                preexec_fn=_die_with(os.getpid()),  # noqa: PLW1509 - no thread runs yet
            )
        finally:
            os.close(write_end)
        identity = identify(self._process.pid)
        assert identity is not None, "an unreaped child has an identity"
        self.identity: ProcessId = identity
        threading.Thread(target=self._wait, name="wait", daemon=True).start()

    @property
    def return_code(self) -> int:
        """Return the exit code once `ended` is set; -N when signal N ended it."""
        code = self._process.returncode
        assert code is not None, "read before the end"
        return code

    def send(self, number: int) -> None:
        """Signal the trainer itself; its workers are its own business."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill_all(self) -> None:
        """SIGKILL the trainer and everything it started that did not leave its session."""
        if not self.ended.is_set():
            self._kill_group()

    def _wait(self) -> None:
        # Looked at before it is reaped: until then its group's id cannot be reused.
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        self.end_time = time.time()
        self._kill_group()
        self._process.wait()
        self.ended.set()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _die_with(wrapper_pid: int) -> Callable[[], None]:
    def before_exec() -> None:
        prctl.signal_on_parent_death(signal.SIGKILL)
        if os.getppid() != wrapper_pid:  # it died before the kernel knew
            os.kill(os.getpid(), signal.SIGKILL)

    return before_exec
