"""What layouts of a recipe took where they were tried: measured beside what was predicted."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from dsforge.base.canonical import dumps
from dsforge.records.typed import build

SCHEMA_VERSION = 1
KIND = "calibration"


@dataclass(frozen=True, slots=True)
class Measurement:
    """Median seconds of `steps` steps. `spread`: their middle half, as a share of it.

    `memory_bytes`: the most that rank 0 held in tensors on a GPU, or was resident on a CPU.
    """

    step_seconds: float
    spread: float
    steps: int
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Trial:
    """One layout by the recipe's keys: what was predicted, and what was measured or why it failed.

    `work_sha256`: of what fixes a step's work besides the layout. `predicted_memory_bytes` is of the same as
    the measured bytes. A prediction is None where nothing is known to predict by or the layout is refused.
    """

    values: dict[str, Any]
    work_sha256: str | None
    predicted_step_seconds: float | None
    predicted_memory_bytes: int | None
    measured: Measurement | None
    failure: str | None
    run_id: str | None


@dataclass(frozen=True, slots=True)
class Setting:
    """What was tried, and where. `host` is empty where it is several."""

    recipe_sha256: str
    trainer: str
    gpu: str
    gpus: int
    host: str
    steps: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """Trials of one setting, in the order that they were made."""

    setting: Setting
    trials: tuple[Trial, ...] = ()
    kind: str = KIND
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> str:
        """Return the text of the file."""
        return dumps(asdict(self))

    def trial(self, values: dict[str, Any]) -> Trial | None:
        """Return the trial of a layout, None while it was not tried."""
        return next((one for one in self.trials if one.values == values), None)


def parse_calibration(data: Any) -> Calibration:
    """Return the record in parsed JSON; ValueError, in words, when it is none or says what cannot be."""
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise ValueError("is not what `dsforge tune` writes")
    if (version := data.get("schema_version")) != SCHEMA_VERSION:
        raise ValueError(f"has schema version {version}, this build reads {SCHEMA_VERSION}")
    try:
        made = build(Calibration, data)
    except TypeError as error:
        raise ValueError(f"is not whole: {error}") from None
    for one in made.trials:
        known = [one.predicted_step_seconds, one.measured.step_seconds if one.measured else None]
        if not all(seconds is None or 0 < seconds < math.inf for seconds in known):
            raise ValueError("says that a step takes no time")
    return made
