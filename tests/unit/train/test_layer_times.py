"""The pieces that are timed are a model's own, and stages really are the ones that were dealt out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing

from dsforge.plan.resolve import make_plan
from dsforge.plan.types import Plan
from dsforge.recipe.load import load_recipe
from dsforge.records.layer_times import parse_layer_times
from dsforge.train import forge
from dsforge.train.layer_times import measure, pieces
from tests.support.recipes import write
from tests.support.stage_ranks import tell_stages
from tests.unit.plan.test_partition_weights import RECIPE, TIMES

CPU = torch.device("cpu")


@pytest.fixture
def alone() -> Iterator[None]:
    """One rank, as the measuring process is."""
    from megatron.core import parallel_state

    forge.import_libraries(CPU)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_pieces_are_the_models(alone: None, make_plan: Any, recompute: str):
    plan: Plan = make_plan(train__recompute=recompute, batch__seq_len=8)
    parts = pieces(plan, CPU)
    assert list(parts) == ["embedding", "layer", "head"]
    shape = (plan.batch.seq_len, plan.batch.micro, plan.model.hidden)
    assert (parts["embedding"]().shape, parts["layer"]().shape) == (shape, shape)
    # First weights guess evenly among the 61 words, the padding of the vocabulary left out.
    assert parts["head"]().item() == pytest.approx(math.log(61), abs=0.05)


@pytest.mark.parametrize("tied", [True, False])
def test_what_is_measured_makes_a_record_that_a_recipe_takes(alone: None, make_plan: Any, tied: bool):
    plan: Plan = make_plan(model__tied=tied)
    times = measure(plan, TIMES["of"], CPU, repeats=3)
    assert parse_layer_times(json.loads(times.to_json())) == times
    assert (times.of, times.differing(TIMES["of"])) == (TIMES["of"], [])
    assert (times.micro, times.repeats, times.trainer) == (2, 3, "forge")
    assert min(times.embedding.weight, times.layer.weight, times.head.weight) > 0


def test_both_trainers_build_the_stages_that_the_times_deal_out(tmp_path: Path):
    (tmp_path / "times.json").write_text(json.dumps(TIMES))
    loaded = load_recipe(
        write(tmp_path, RECIPE),
        ["parallel.tp=1", "parallel.dp=1", "cluster.gpus_per_node=2"],
    )
    plan = make_plan(loaded)
    assert [stage.layers for stage in plan.layout.stages] == [6, 3]
    torch.multiprocessing.spawn(tell_stages, (tmp_path, plan), nprocs=2)
    held = [json.loads((tmp_path / f"stage-{rank}.json").read_text()) for rank in range(2)]
    for trainer in ("forge", "megatron-core"):
        assert [one[trainer]["layers"] for one in held] == [[0, 1, 2, 3, 4, 5], [6, 7, 8]]
        assert [one[trainer]["head"] for one in held] == [False, True]
        assert [one[trainer]["parameters"] for one in held] == [s.parameters for s in plan.layout.stages]
