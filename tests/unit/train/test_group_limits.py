"""Every group of a rank, whoever made it, has the plan's limit for a collective."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from dsforge.train import megatron_core, world
from tests.launch_support.plans import make_plan

CPU = torch.device("cpu")


@pytest.fixture
def groups() -> Iterator[world.Groups]:
    """Those of megatron-core, of a rank that is alone."""
    from megatron.core import parallel_state

    megatron_core.import_libraries(CPU)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield megatron_core.make_groups(make_plan(world_size=1).layout)
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


def limits(*made: Any) -> set[timedelta]:
    return {group._get_backend(CPU).options._timeout for group in made}


@pytest.mark.parametrize(("seconds", "limit"), [(45.0, timedelta(seconds=45)), (0.0, timedelta(days=3650))])
def test_engines_groups_get_the_plans_limit(groups: world.Groups, seconds: float, limit: timedelta):
    without = dist.new_group()
    assert limits(groups.tensor, groups.context, without, *groups.experts.values()) != {limit}
    world.limit_groups(make_plan(world_size=1, collective_timeout_seconds=seconds).launch)
    assert limits(groups.tensor, groups.context, without, *groups.experts.values()) == {limit}
    assert limits(*distributed_c10d._world.pg_map) == {limit}
