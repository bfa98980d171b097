from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.ops.fewer_hosts import changed, changes_without
from dsforge.plan.resolve import make_plan
from dsforge.recipe.load import load_recipe
from tests.support.recipes import SMALL, write

HOSTS = SMALL.replace(
    "nodes: 1, gpus_per_node: 8, gpu: cpu", "nodes: 4, gpus_per_node: 4, gpu: cpu, hostfile: h"
)
TEXT = HOSTS.replace("dp: 2, ", "") + "launch: {launcher: ssh, restarts: 2}\n"


@pytest.mark.parametrize(
    ("spares", "lost", "changes"),
    [
        (0, ["b"], ("cluster.nodes=3", "cluster.exclude=b")),
        (2, ["b"], ("cluster.nodes=4", "cluster.spares=1", "cluster.exclude=b")),
        (1, ["b", "c"], ("cluster.nodes=3", "cluster.spares=0", "cluster.exclude=b@c")),
        (0, ["a", "b", "c"], ("cluster.nodes=1", "cluster.exclude=a@b@c")),
    ],
)
def test_spares_go_first(tmp_path: Path, spares: int, lost: list[str], changes: tuple[str, ...]):
    loaded = load_recipe(write(tmp_path, TEXT), [f"cluster.spares={spares}"])
    assert changes_without(make_plan(loaded), lost) == changes


def test_the_batch_stays_and_the_replicas_are_fewer(tmp_path: Path):
    loaded = load_recipe(write(tmp_path, TEXT))
    plan = make_plan(loaded)
    fewer = make_plan(changed(loaded, changes_without(plan, ["b", "d"])))
    assert (plan.layout.dp, fewer.layout.dp, fewer.layout.nodes) == (4, 2, 2)
    assert fewer.batch.global_size == plan.batch.global_size
    assert fewer.batch.accumulation_steps == 2 * plan.batch.accumulation_steps
    assert (loaded.recipe.cluster.nodes, fewer.exclude) == (4, "b@d")


def test_a_launcher_that_is_left_open_stays_what_it_was(tmp_path: Path):
    plan = make_plan(load_recipe(write(tmp_path, TEXT.replace("launcher: ssh, ", ""))))
    assert changes_without(plan, ["a"]) == ("cluster.nodes=3", "cluster.exclude=a")
    assert changes_without(plan, ["a", "b", "c"])[-1] == "launch.launcher=pdsh"
