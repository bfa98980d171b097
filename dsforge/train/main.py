"""Starts one rank: `python -m dsforge.train.main`, everything else comes from the environment."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import sys
import threading
import traceback

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.train.context import read_context

TRAINERS = {"forge": "dsforge.train.forge"}
"""A trainer is a module with `train(context)`."""


def end_on_sigterm() -> None:
    """End with 143 on SIGTERM at once, even where the main thread waits inside a collective."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)

    def wait() -> None:
        while signal.SIGTERM not in reader.recv(64):
            continue
        writer.close()
        os._exit(ExitCode.TERMINATED)

    threading.Thread(target=wait, name="dsforge-sigterm", daemon=True).start()


def main() -> int:
    """Run the plan's trainer and return the exit code."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    log = logging.getLogger("dsforge.train")
    end_on_sigterm()
    try:
        context = read_context()
        name = TRAINERS.get(context.plan.trainer)
        if name is None:
            known = ", ".join(sorted(TRAINERS))
            raise DsforgeError(
                "T004", f"trainer `{context.plan.trainer}` is not known", hint=f"trainers: {known}"
            )
        importlib.import_module(name).train(context)
    except DsforgeError as error:
        where = f" ({error.place})" if error.place and str(error.place) else ""
        sys.stderr.write(f"error[{error.code}]: {error.message}{where}\n")
        if error.hint:
            sys.stderr.write(f"  hint: {error.hint}\n")
        return error.exit_code
    except Exception:  # noqa: BLE001 - a rank must end with a code and its traceback, whatever went wrong
        log.error("%s", traceback.format_exc())
        return 1
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
