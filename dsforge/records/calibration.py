"""What layouts of a recipe took where they were tried: measured beside what was predicted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dsforge.base.canonical import dumps
from dsforge.records.figures import Bytes, Count, Degree, PredictedSeconds, Seconds, Share
from dsforge.records.measured import measured_record

SCHEMA_VERSION = 1
KIND = "calibration"


@dataclass(frozen=True, slots=True)
class Measurement:
    """Median seconds of `steps` steps. `spread`: their middle half, as a share of it.

    `memory_bytes`: the most that rank 0 held in tensors on a GPU, or was resident on a CPU.
    """

    step_seconds: Seconds
    spread: Share
    steps: Count
    memory_bytes: Bytes | None


@dataclass(frozen=True, slots=True)
class Trial:
    """One layout by the recipe's keys: what was predicted, and what was measured or why it failed.

    `work_sha256`: of what fixes a step's work besides the layout. `predicted_memory_bytes` is of the same as
    the measured bytes. A prediction is None where nothing is known to predict by or the layout is refused.
    """

    values: dict[str, bool | Degree | str]
    work_sha256: str | None
    predicted_step_seconds: PredictedSeconds | None
    predicted_memory_bytes: Bytes | None
    measured: Measurement | None
    failure: str | None
    run_id: str | None


@dataclass(frozen=True, slots=True)
class Setting:
    """What was tried, and where. `host` is empty where it is several."""

    recipe_sha256: str
    trainer: str
    gpu: str
    gpus: Count
    host: str
    steps: Count


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
    made = measured_record(Calibration, data, KIND, SCHEMA_VERSION, "dsforge tune")
    for at, one in enumerate(made.trials):
        first = next(number for number, other in enumerate(made.trials) if other.values == one.values)
        if first != at:
            raise ValueError(f"has one layout twice: trials.{first} and trials.{at}")
    return made
