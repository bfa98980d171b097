import math
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dsforge.base.errors import DsforgeError
from dsforge.records.run_dir import AttemptDir
from dsforge.train.engine_protocol import StepResult
from dsforge.train.finite import check_step
from dsforge.train.held import Piece
from dsforge.train.module_watch import ModuleWatch, Sight
from dsforge.train.recorder import Recorder


@pytest.fixture
def chain():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4), nn.LayerNorm(4))


def watch_of(chain: nn.Module) -> ModuleWatch:
    names = {"0": "first", "2": "second", "3": "norm"}
    parameters = {
        f"{names[name.partition('.')[0]]}.{name.partition('.')[2]}": one
        for name, one in chain.named_parameters()
    }
    return ModuleWatch([chain], parameters, torch.device("cpu"))


def test_the_first_module_in_the_order_of_computing_is_named_with_its_micro_batch(chain):
    watch = watch_of(chain)
    watch.begin()
    chain(torch.ones(2, 4))
    assert watch.first() is None
    with torch.no_grad():
        chain[2].weight[0, 0] = math.inf
    chain(torch.ones(2, 4))
    chain(torch.full((2, 4), math.nan))
    # Three modules of the micro-batch before were computed, and one of this.
    assert watch.first() == Sight(micro=1, call=4, module="second")
    watch.begin()
    assert watch.first() is None
    chain(torch.full((2, 4), math.nan))
    assert watch.first() == Sight(micro=0, call=0, module="first")


def test_the_gradient_nearest_to_the_loss_is_named(chain):
    watch = watch_of(chain)
    watch.begin()
    assert watch.last_gradient() is None
    good, bad = torch.ones(3), torch.tensor([1.0, math.nan])
    pieces = {"a": Piece.whole(bad), "b": Piece.whole(bad), "c": Piece.whole(good), "d": Piece.nothing(bad)}
    watch.look_at_gradients(pieces)
    assert watch.last_gradient() == "b"


def test_a_lost_step_tells_the_module(tmp_path, make_plan, chain):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        plan, watch = make_plan(), watch_of(chain)
        context = SimpleNamespace(plan=plan, rank=0, world_size=1)
        recorder = Recorder(AttemptDir(tmp_path), plan, 0, torch.device("cpu"))
        watch.begin()
        chain(torch.full((2, 4), math.inf))
        with pytest.raises(DsforgeError) as caught:
            check_step(StepResult(math.nan, 1.0), [torch.tensor(math.nan)], 2, context, recorder, watch)
        assert caught.value.message.endswith(
            "first in micro-batch 0 of rank 0 (samples 4 to 5); the first module whose output is not finite: "
            "first, on rank 0 (stage 0, replica 0), micro-batch 0 of rank 0 (samples 4 to 5)"
        )
        assert '"module":"first"' in AttemptDir(tmp_path).events.read_text()
    finally:
        dist.destroy_process_group()
