"""What `dsforge tune` measured, as far as plans use it: times of layers, and how far estimates are off."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from dsforge.base.canonical import sha256_text, sha256_value
from dsforge.base.errors import DsforgeError, Place
from dsforge.plan.search.candidate import KEYS
from dsforge.plan.types import Plan
from dsforge.records.calibration import Calibration, Measurement, parse_calibration
from dsforge.records.layer_times import LayerTimes, parse_layer_times


@dataclass(frozen=True, slots=True)
class Factor:
    """What estimates of one trainer on one kind of machine are to be multiplied by: medians over layouts.

    `error`: how far the layouts' own factors are from it on average, None of one layout alone. `host` is
    empty where they ran on several.
    """

    time: float
    memory: float | None
    layouts: int
    error: float | None
    host: str


@dataclass(frozen=True, slots=True)
class Known:
    """What a calibration says of a plan. `measured`: its very layout, of the same work."""

    file: str
    sha256: str
    factor: Factor | None
    measured: Measurement | None

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        return asdict(self)


def layer_times(data: Any) -> LayerTimes:
    """Return the times in parsed JSON; DsforgeError DSF798 when it holds none."""
    try:
        return parse_layer_times(data)
    except ValueError as error:
        hint = "`dsforge tune --layers RECIPE` measures and writes them"
        raise DsforgeError("DSF798", f"the file of layer times {error}", hint=hint) from None


def calibration_in(data: Any, place: Place) -> Calibration:
    """Return the calibration in parsed JSON; DsforgeError DSF798 when it holds none."""
    try:
        return parse_calibration(data)
    except ValueError as error:
        hint = "`dsforge tune RECIPE` measures and writes one"
        raise DsforgeError("DSF798", f"the calibration {error}", place, hint) from None


def known_by(calibration: Calibration, plan: Plan, place: Place) -> Known:
    """Return what a calibration says of a plan; DsforgeError DSF798 if of another trainer or GPU."""
    setting = calibration.setting
    for what, theirs, own in (("trainer", setting.trainer, plan.trainer), ("gpu", setting.gpu, plan.gpu)):
        if theirs != own:
            raise DsforgeError(
                "DSF798",
                f"the calibration was measured with {what} {theirs}, and the plan has {own}",
                place,
                "`dsforge tune RECIPE` measures one for this recipe",
            )
    trial = calibration.trial(values_of(plan))
    is_same = trial is not None and trial.work_sha256 == work_sha256(plan)
    return Known(
        file=str(place.file),
        sha256=sha256_text(calibration.to_json()),
        factor=factor_of(calibration),
        measured=trial.measured if trial is not None and is_same else None,
    )


def factor_of(calibration: Calibration) -> Factor | None:
    """Return what a calibration makes of estimates, None where nothing measured had been predicted."""
    times, memories = [], []
    for one in calibration.trials:
        if one.measured is None:
            continue
        if one.predicted_step_seconds is not None:
            times.append(one.measured.step_seconds / one.predicted_step_seconds)
        if one.predicted_memory_bytes and one.measured.memory_bytes:
            memories.append(one.measured.memory_bytes / one.predicted_memory_bytes)
    if not times:
        return None
    middle = median(times)
    return Factor(
        time=middle,
        memory=median(memories) if memories else None,
        layouts=len(times),
        error=fmean(abs(one / middle - 1) for one in times) if len(times) > 1 else None,
        host=calibration.setting.host,
    )


def values_of(plan: Plan) -> dict[str, Any]:
    """Return a plan's layout by the recipe's keys that a search chooses."""
    named = {
        **plan.layout.model_dump(include={*KEYS.values()}),
        "micro": plan.batch.micro,
        "recompute": plan.train.recompute,
        "optimizer": plan.offload.optimizer,
        "parameters": plan.offload.parameters,
    }
    return {key: named[name] for key, name in KEYS.items()}


def work_sha256(plan: Plan) -> str:
    """Return what fixes a step's work besides its layout: equal work in one layout takes equally long."""
    train = plan.train.model_dump(include={"precision", "recompute_every", "dropout", "attention_dropout"})
    batch = plan.batch.model_dump(include={"global_size", "seq_len"})
    partition = (plan.layout.partition, plan.layout.partition_weights_sha256)
    model = plan.model.model_dump(mode="json", exclude={"name", "padded_vocab"})
    where = (plan.layout.nodes, plan.layout.gpus_per_node, plan.gpu, plan.trainer)
    return sha256_value([model, train, batch, partition, where])
