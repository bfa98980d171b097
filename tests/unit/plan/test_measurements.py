"""What a calibration makes of a plan's estimates, and what it leaves as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsforge.base.canonical import sha256_text
from dsforge.plan.estimate import estimate
from dsforge.plan.measurements import factor_of, values_of, work_sha256
from dsforge.plan.memory import memory_estimate
from dsforge.plan.resolve import make_plan
from dsforge.plan.types import Plan
from dsforge.recipe.load import load_recipe
from dsforge.records.calibration import Calibration, Measurement, Setting, Trial, parse_calibration
from tests.support.recipes import write

Cli = Callable[..., Any]
RECIPE = """\
version: 1
model: llama3-8b
cluster: {nodes: 1, gpus_per_node: 8, gpu: h100-sxm-80gb}
parallel: {tp: 2, zero: 1}
batch: {global: 128, micro: 1, seq_len: 4096}
train: {steps: 20, recompute: full}
"""
SETTING = Setting("0" * 64, "forge", "h100-sxm-80gb", 8, "node1", 8)


def _trial(number: int, seconds: float | None, predicted: float | None = 2.0, **changes: Any) -> Trial:
    measured = Measurement(seconds, 0.1, 5, 3 * 2**30) if seconds is not None else None
    made = {"predicted_memory_bytes": 2**30, "work_sha256": None, "failure": None, "run_id": None, **changes}
    return Trial({"parallel.tp": number}, predicted_step_seconds=predicted, measured=measured, **made)


def _calibration(*trials: Trial) -> Calibration:
    return Calibration(SETTING, trials)


def _plan(tmp_path: Path, *changes: str) -> Plan:
    return make_plan(load_recipe(write(tmp_path, RECIPE), changes))


def test_the_factor_is_the_median_of_what_was_measured_and_predicted():
    trials = (_trial(1, 2.4), _trial(2, 3.0), _trial(4, 6.0), _trial(8, None), _trial(3, 9.0, None))
    factor = factor_of(_calibration(*trials))
    assert factor is not None
    # 1.2, 1.5 and 3 times what was predicted: 0.2, 0 and 1 off the median.
    assert (factor.time, factor.memory, factor.layouts) == (1.5, 3.0, 3)
    assert factor.error == pytest.approx(0.4)
    alone = factor_of(_calibration(_trial(1, 2.4)))
    assert alone is not None
    assert (alone.time, alone.error) == (1.2, None)
    assert factor_of(_calibration(_trial(8, None), _trial(3, 9.0, None))) is None


def test_every_part_of_a_step_is_scaled_and_what_follows_from_it(tmp_path: Path):
    plan = _plan(tmp_path)
    plain, factor = estimate(plan), factor_of(_calibration(_trial(1, 3.0)))
    made = estimate(plan, factor=factor)
    assert not isinstance(plain, str)
    assert not isinstance(made, str)
    assert made.step.total == pytest.approx(1.5 * plain.step.total)
    assert made.step.compute == pytest.approx(1.5 * plain.step.compute)
    assert made.tokens_per_second_per_gpu == pytest.approx(plain.tokens_per_second_per_gpu / 1.5)
    assert made.run.days == pytest.approx(1.5 * plain.run.days)
    assert made.bubble_share == pytest.approx(plain.bubble_share)


def test_plan_tells_what_a_calibration_scaled_and_the_plan_itself_stays(cli: Cli, tmp_path: Path):
    recipe, file = write(tmp_path, RECIPE), tmp_path / "c.json"
    plan = _plan(tmp_path)
    own = _trial(0, 5.0, work_sha256=work_sha256(plan))
    text = _calibration(Trial(**{**_fields(own), "values": values_of(plan)})).to_json()
    file.write_text(text)
    plain = cli("plan", recipe, "--json").json
    told = cli("plan", recipe, "--calibration", file, "--json").json
    assert told["estimate"]["step"]["total"] == pytest.approx(2.5 * plain["estimate"]["step"]["total"])
    assert told["calibration"]["sha256"] == sha256_text(text)
    assert told["calibration"]["measured"]["step_seconds"] == 5.0
    # All that is rendered is the same.
    assert Plan.model_validate(told) == Plan.model_validate(plain) == plan
    shown = cli("plan", recipe, "--calibration", file).out
    assert "(x 2.5 by 1 layout measured on node1)" in shown
    assert "measured 5 s a step of this layout (middle half 10%), 3.2 GB held by rank 0" in shown
    memory = memory_estimate(plan)
    assert not isinstance(memory, str)
    assert "memory   x 3 measured: " in shown
    # Of another batch it is the factor alone.
    other = cli("plan", recipe, "--calibration", file, "batch.global=64", "--json").json
    assert other["calibration"]["measured"] is None
    assert other["calibration"]["factor"]["time"] == 2.5


def _fields(one: Trial) -> dict[str, Any]:
    return {name: getattr(one, name) for name in Trial.__dataclass_fields__}


def test_a_search_shows_scaled_times_in_the_same_order(cli: Cli, tmp_path: Path):
    recipe, file = write(tmp_path, RECIPE), tmp_path / "c.json"
    file.write_text(_calibration(_trial(1, 3.0)).to_json())
    words = ("plan", recipe, "--search", "--top", "3", "--json")
    plain, told = (cli(*words, *more).json["layouts"]["best"] for more in ((), ("--calibration", file)))
    assert [one["values"] for one in told] == [one["values"] for one in plain]
    assert [one["step"]["total"] for one in told] == pytest.approx(
        [1.5 * one["step"]["total"] for one in plain]
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("trainer=megatron-core", "with trainer forge, and the plan has megatron-core"),
        ("cluster.gpu=a100-sxm-80gb", "with gpu h100-sxm-80gb, and the plan has a100-sxm-80gb"),
    ],
)
def test_a_calibration_of_something_else_is_refused(cli: Cli, tmp_path: Path, change: str, told: str):
    file = tmp_path / "c.json"
    file.write_text(_calibration(_trial(1, 3.0)).to_json())
    shown = cli("plan", write(tmp_path, RECIPE), change, "--calibration", file)
    assert shown.code == 2
    assert "error[DSF798]" in shown.err
    assert told in shown.err


def test_a_record_reads_back_as_it_was_written_and_no_other_is_taken():
    made = _calibration(_trial(1, 3.0), _trial(2, None, None, failure="no", predicted_memory_bytes=None))
    data = json.loads(made.to_json())
    assert parse_calibration(data) == made
    broken: list[tuple[dict[str, Any], str]] = [
        ({**data, "kind": "other"}, "is not what"),
        ({**data, "schema_version": 0}, "schema version 0"),
        ({key: value for key, value in data.items() if key != "setting"}, "is not whole"),
        (
            {**data, "trials": [{**data["trials"][0], "predicted_step_seconds": 0.0}]},
            "trials.0.predicted_step",
        ),
    ]
    for value, told in broken:
        with pytest.raises(ValueError, match=told):
            parse_calibration(value)
