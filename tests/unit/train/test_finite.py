import math
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dsforge.base.errors import DsforgeError
from dsforge.records.run_dir import AttemptDir
from dsforge.train.engine_protocol import StepResult
from dsforge.train.finite import check_step, check_weights, first_not_finite, named
from dsforge.train.recorder import Recorder


@pytest.fixture
def run(tmp_path, make_plan):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    plan = make_plan()
    context = SimpleNamespace(plan=plan, rank=0, world_size=1)
    attempt = AttemptDir(tmp_path)
    yield context, Recorder(attempt, plan, 0, torch.device("cpu")), attempt
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("result", "losses", "message"),
    [
        (
            StepResult(math.nan, 1.0),
            (2.0, math.nan, math.nan),
            (
                "the loss is nan at step 7, computed on rank 0 (stage 0, replica 0), "
                "first in micro-batch 1 of rank 0 (samples 26 to 27)"
            ),
        ),
        (StepResult(2.0, math.inf), (2.0,), "the gradient norm is inf at step 7"),
        (StepResult(math.inf, math.nan), (), "the loss is inf and the gradient norm is nan at step 7"),
    ],
)
def test_a_step_that_is_not_finite_ends_the_run(run, result, losses, message):
    context, recorder, attempt = run
    check_step(StepResult(2.0, 1.0), (torch.tensor(2.0),), 6, context, recorder)
    assert not attempt.events.exists()
    with pytest.raises(DsforgeError) as caught:
        check_step(result, [torch.tensor(loss) for loss in losses], 7, context, recorder)
    assert caught.value.message == message
    assert (caught.value.code, caught.value.exit_code, caught.value.place.rank) == ("DSF350", 1, 0)
    event = attempt.events.read_text()
    assert '"name":"not_finite"' in event
    assert "NaN" not in event
    assert "Infinity" not in event


def test_weights_are_looked_at_before_they_are_kept(run):
    context, recorder, _ = run
    weights = {"a": nn.Parameter(torch.ones(3)), "b": nn.Parameter(torch.ones(2, 2))}
    check_weights(weights, 4, context, recorder)
    with torch.no_grad():
        weights["b"][1, 1] = math.inf
    with pytest.raises(DsforgeError, match="b is not finite after step 4, on rank 0"):
        check_weights(weights, 4, context, recorder)


def test_the_shard_of_a_partitioned_parameter_is_looked_at():
    parameter = nn.Parameter(torch.empty(0))
    assert first_not_finite({"w": parameter}) is None
    parameter.ds_tensor = torch.tensor([1.0, math.nan])
    assert first_not_finite({"w": parameter}) == "w"


def test_many_ranks_are_not_all_named(make_plan):
    layout = make_plan(layout__tp=2, layout__pp=2, layout__dp=4).layout
    assert named([1, 9], layout) == "rank 1 (stage 0, replica 0), rank 9 (stage 1, replica 0)"
    assert named(list(range(16)), layout).endswith("rank 3 (stage 0, replica 1), 12 more")
