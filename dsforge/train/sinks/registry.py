"""The sinks by the key of the recipe's `monitor` that turns them on."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Protocol

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import EvalLine, MetricsLine

SINKS = {"tensorboard": "tensorboard"}
"""Package that a sink needs; the sink is the module of its name here, with `open_sink(attempt)`."""


class Sink(Protocol):
    """Takes every line of `metrics.jsonl` of one attempt, on rank 0 alone."""

    def write(self, line: MetricsLine | EvalLine) -> None:
        """Pass a line on; it is there to be read when this returns."""


def check_sinks(names: Sequence[str]) -> None:
    """Raise DsforgeError DSF306 for a sink whose package is not installed; imports none of them."""
    for name in names:
        package = SINKS[name]
        if importlib.util.find_spec(package) is None:
            raise DsforgeError(
                "DSF306",
                f"monitor.{name} is on and the package {package} is not installed",
                hint=f"pip install {package} into this environment, or set monitor.{name}=false",
                exit_code=ExitCode.ENVIRONMENT,
            )


def open_sinks(names: Sequence[str], attempt: AttemptDir) -> tuple[Sink, ...]:
    """Return the sinks of an attempt; DsforgeError as `check_sinks`."""
    check_sinks(names)
    return tuple(importlib.import_module(f"dsforge.train.sinks.{name}").open_sink(attempt) for name in names)
