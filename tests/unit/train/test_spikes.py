import json
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from dsforge.base.errors import DsforgeError
from dsforge.records.run_dir import AttemptDir
from dsforge.train.engine_protocol import StepResult
from dsforge.train.recorder import Recorder
from dsforge.train.skips import Skips
from dsforge.train.spikes import SpikeWatch, tell_spike


def test_a_loss_far_above_the_scatter_of_the_last_ones_is_a_spike():
    spikes = SpikeWatch()
    # Mean 3.0, deviation 0.1: the bound is 3.6.
    assert all(spikes.follow(3.0 + 0.1 * (-1) ** step) is None for step in range(40))
    assert spikes.follow(3.59) is None
    spikes = SpikeWatch()
    [spikes.follow(3.0 + 0.1 * (-1) ** step) for step in range(40)]
    assert spikes.follow(3.61) == pytest.approx(3.6)


def test_a_loss_that_falls_fast_or_hardly_scatters_is_none():
    spikes = SpikeWatch()
    assert all(spikes.follow(11 * 0.97**step) is None for step in range(300))
    spikes = SpikeWatch()
    assert all(spikes.follow(2.0) is None for _ in range(50))
    assert spikes.follow(2.19) is None
    assert spikes.follow(9.0) is not None


def test_the_first_steps_say_nothing_and_old_ones_are_forgotten():
    spikes = SpikeWatch()
    assert [spikes.follow(loss) for loss in (1.0,) * 15 + (9.0,)] == [None] * 16
    spikes = SpikeWatch()
    [spikes.follow(50.0) for _ in range(20)]
    [spikes.follow(1.0) for _ in range(128)]
    assert spikes.follow(2.0) == pytest.approx(1.1)


@pytest.fixture
def alone(tmp_path, make_plan):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    plan = make_plan(train__precision="bf16")
    attempt = AttemptDir(tmp_path)
    context = SimpleNamespace(plan=plan, rank=0, world_size=1)
    yield context, Recorder(attempt, plan, 0, torch.device("cpu")), attempt
    dist.destroy_process_group()


def test_a_spike_is_told_with_the_micro_batch_that_is_highest(alone):
    context, recorder, attempt = alone
    tell_spike(5.0, 3.6, [torch.tensor(2.0), torch.tensor(8.0)], 9, context, recorder)
    event = json.loads(attempt.events.read_text())
    assert event["message"] == (
        "the loss of step 9 is 5.0000, above 3.6000 by the last ones; "
        "highest, 8.0000 in micro-batch 1 of rank 0 (samples 34 to 35)"
    )
    assert event["data"] == {"step": 9, "loss": 5.0, "bound": 3.6, "rank": 0, "micro_batch": 1}


def test_bf16_may_skip_two_steps_in_a_row_and_fp16_any_number(alone):
    context, recorder, attempt = alone
    skips, lost = Skips(context, recorder), StepResult(2.0, float("inf"), skipped=True)
    for step, result in enumerate([lost, lost, StepResult(2.0, 1.0), lost, lost], start=1):
        skips.follow(step, result)
    assert skips.count == 4
    with pytest.raises(DsforgeError, match="gradients were not finite in 3 steps up to 6") as caught:
        skips.follow(6, lost)
    assert caught.value.code == "DSF350"
    events = [json.loads(line) for line in attempt.events.read_text().splitlines()]
    assert [event["data"]["skipped_steps"] for event in events] == [1, 2, 3, 4, 5]
    assert events[0]["message"] == "step 1 skipped: gradients overflowed bf16"
    scaled = Skips(context, recorder)
    for step in range(10):
        scaled.follow(step, StepResult(2.0, float("inf"), loss_scale=2.0, skipped=True))
    assert scaled.count == 10
