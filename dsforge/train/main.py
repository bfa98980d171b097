"""Starts one rank: `python -m dsforge.train.main`, everything else comes from the environment."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from types import ModuleType
from typing import NoReturn

from dsforge.base import stack_dump
from dsforge.base.errors import DsforgeError
from dsforge.train.context import read_context
from dsforge.train.stop import LISTENER

TRAINERS = {
    "forge": "dsforge.train.forge",
    "transformers": "dsforge.train.hugging_face",
    "fsdp": "dsforge.train.fsdp",
    "ddp": "dsforge.train.ddp",
    "megatron-core": "dsforge.train.megatron_core",
}
"""A trainer is a module with what `dsforge.train.run.Trainer` says."""


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
    LISTENER.listen()
    stack_dump.install()
    try:
        context = read_context()
        trainer = trainer_module(context.plan.trainer)
        # Loads torch: not before a signal is answered.
        code: int = importlib.import_module("dsforge.train.run").train(context, trainer)
    except DsforgeError as error:
        sys.stderr.write(error.told())
        return error.exit_code
    except Exception:
        log.exception("rank %s failed", os.environ.get("RANK", "?"))
        return 1
    return code


def end(code: int) -> NoReturn:
    """Leave at once: the teardown of a broken group may hang, and it would undo the SIGTERM handler."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    end(main())
