"""Starts one rank: `python -m dsforge.train.main`, everything else comes from the environment."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import sys
import threading
from types import ModuleType
from typing import NoReturn

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.train.context import read_context

TRAINERS = {"forge": "dsforge.train.forge", "transformers": "dsforge.train.hugging_face"}
"""A trainer is a module with what `dsforge.train.run.Trainer` says."""


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


def trainer_module(name: str) -> ModuleType:
    """Return the module of a trainer; DsforgeError if there is none of that name."""
    if name not in TRAINERS:
        raise DsforgeError("DSF304", f"trainer `{name}` is not known", hint=f"one of: {', '.join(TRAINERS)}")
    return importlib.import_module(TRAINERS[name])


def main() -> int:
    """Run the plan's trainer and return the exit code."""
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )
    log = logging.getLogger("dsforge.train")
    end_on_sigterm()
    try:
        context = read_context()
        trainer = trainer_module(context.plan.trainer)
        # Loads torch: not before a signal is answered.
        importlib.import_module("dsforge.train.run").train(context, trainer)
    except DsforgeError as error:
        where = f" ({error.place})" if error.place and str(error.place) else ""
        sys.stderr.write(f"error[{error.code}]: {error.message}{where}\n")
        if error.hint:
            sys.stderr.write(f"  hint: {error.hint}\n")
        return error.exit_code
    except Exception:
        log.exception("rank %s failed", os.environ.get("RANK", "?"))
        return 1
    return ExitCode.OK


def end(code: int) -> NoReturn:
    """Leave at once: the teardown of a broken group may hang, and it would undo the SIGTERM handler."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    end(main())
