"""A request to stop, and the step after which all ranks obey it.

The signal reaches ranks at different times and on different steps, so none of them may act alone: whether
somebody was asked crosses the ranks once a step, while the optimizer works.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from typing import Any

import torch
import torch.distributed as dist

from dsforge.base.exits import ExitCode
from dsforge.plan.types import Launch
from dsforge.train.world import control_group


class StopListener:
    """Hears SIGTERM, even where the main thread waits inside a collective.

    It ends the process with 143 at once until `defer`; from then on it only remembers.
    """

    def __init__(self) -> None:
        self.heard = False
        self._deferred = False
        self._lock = threading.Lock()
        self._ends: tuple[socket.socket, ...] = ()
        """Held for as long as the process lives: a closed descriptor would be woken as somebody else's."""

    def listen(self) -> None:
        """Begin to listen; call from the main thread."""
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, lambda *_: None)
        self._ends = (reader, writer)
        threading.Thread(target=self._wait, args=(reader,), name="dsforge-stop", daemon=True).start()

    def defer(self) -> None:
        """Leave the end to the training loop: from here on there is something to save."""
        with self._lock:
            self._deferred = True

    def _wait(self, reader: socket.socket) -> None:
        while numbers := reader.recv(64):
            if signal.SIGTERM in numbers:
                with self._lock:
                    self.heard = True
                    if not self._deferred:
                        os._exit(ExitCode.TERMINATED)


LISTENER = StopListener()
"""The process's own: signals are the process's."""


class StopAgreement:
    """What the ranks agree on; every rank must make the same calls in the same order."""

    def __init__(self, listener: StopListener, launch: Launch) -> None:
        listener.defer()
        self._listener = listener
        self._group = control_group(launch)
        self._heard = torch.zeros(1, dtype=torch.int32)
        self._question: Any = None

    def ask(self) -> None:
        """Begin to ask whether any rank was told to stop, without waiting for the answer."""
        self._heard[0] = self._listener.heard
        self._question = dist.all_reduce(self._heard, dist.ReduceOp.MAX, self._group, async_op=True)

    def agreed(self) -> bool:
        """Return the answer to the last `ask`, the same on every rank."""
        self._question.wait()
        return bool(self._heard.item())

    def asked_now(self) -> bool:
        """Ask and wait for the answer: where nothing hides the time that it takes."""
        self.ask()
        return self.agreed()
