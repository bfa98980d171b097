"""A recipe's own ds_config.json, read back with its layout given, makes the same plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsforge.base.canonical import dumps
from dsforge.base.errors import DsforgeError
from dsforge.catalog.engines.deepspeed import known_keys
from dsforge.foreign.deepspeed.check import check_deepspeed
from dsforge.foreign.text import Kind
from dsforge.ops.foreign_init import Wanted, import_recipe
from dsforge.plan.resolve import make_plan
from dsforge.plan.types import Plan
from dsforge.recipe.load import load_recipe
from dsforge.recipe.yaml_text import flow_text
from dsforge.render.deepspeed_config import deepspeed_config
from tests.support.recipes import SHIPPED, plan_of

SHAPE = ("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab")
LAYOUTS = st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 2, 4]), st.sampled_from([0, 1, 2, 3]))
BATCHES = st.tuples(st.integers(1, 4), st.integers(1, 8))
OPTIMIZERS = st.fixed_dictionaries(
    {
        "lr": st.floats(1e-6, 1e-2),
        "betas": st.tuples(st.floats(0, 0.99), st.floats(0, 0.999)).map(list),
        "eps": st.floats(1e-12, 1e-4),
        "weight_decay": st.floats(0, 1),
        "grad_clip": st.floats(0, 10),
        "lr_schedule": st.sampled_from(["cosine", "linear", "constant"]),
        "warmup_steps": st.integers(0, 20),
    }
)


def back(plan: Plan, folder: Path) -> Plan:
    """Return the plan of the recipe that comes of a plan's own configuration."""
    path = folder / "ds_config.json"
    path.write_text(dumps(deepspeed_config(plan)), "utf-8")
    model = plan.model
    # What DeepSpeed's file has no place for: the model, the layout, the length and the schedule.
    shape = {key: getattr(model, key) for key in ("arch", *SHAPE)}
    changes = [
        f"name={plan.name}",
        f"parallel.tp={plan.layout.tp}",
        f"parallel.pp={plan.layout.pp}",
        f"parallel.partition={plan.layout.partition}",
        f"train.steps={plan.train.steps}",
        f"train.recompute={plan.train.recompute}",
        f"optimizer.lr_schedule={plan.optimizer.lr_schedule}",
        f"optimizer.warmup_steps={plan.optimizer.warmup_steps}",
        f"optimizer.min_lr={plan.optimizer.min_lr!r}",
        f"model={flow_text(shape)}",
    ]
    layout = plan.layout
    wanted = Wanted(
        gpus=layout.world_size,
        gpus_per_node=layout.gpus_per_node,
        gpu=plan.gpu,
        seq_len=plan.batch.seq_len,
        changes=tuple(changes),
    )
    made = import_recipe(path, Kind.DEEPSPEED, wanted)
    return make_plan(load_recipe(folder / "made.yaml", text=made.text))


@given(
    layout=LAYOUTS,
    batch=BATCHES,
    optimizer=OPTIMIZERS,
    precision=st.sampled_from(["fp32", "bf16"]),
    gpu=st.booleans(),
)
def test_the_same_plan_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    layout: tuple[int, int, int],
    batch: tuple[int, int],
    optimizer: dict[str, Any],
    precision: str,
    gpu: bool,
):
    tp, pp, zero = layout
    dp = 8 // (tp * pp)
    micro, steps = batch
    try:
        plan = plan_of(
            {"cluster": {"gpu": "a100-sxm-80gb" if gpu else "cpu"}},
            {"parallel": {"tp": tp, "pp": pp, "dp": dp, "zero": zero}},
            {"batch": {"global": micro * steps * dp, "micro": micro}},
            {"train": {"precision": precision}, "optimizer": optimizer},
        )
    except DsforgeError:
        return  # a rule refuses the layout: nothing is rendered of it
    folder = tmp_path_factory.mktemp("back")
    refusals = {one["code"] for one in plan.findings if one["severity"] == "error"}
    if refusals:  # such a plan is shown only; the import refuses it by the same rules
        with pytest.raises(DsforgeError) as caught:
            back(plan, folder)
        assert {caught.value.code, *(one.code for one in caught.value.findings)} == refusals
        return
    again = back(plan, folder)
    for part in ("model", "layout", "batch", "train", "optimizer"):
        assert getattr(again, part) == getattr(plan, part)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_what_render_writes_has_no_findings(path: Path):
    plan = make_plan(load_recipe(path))
    text = dumps(deepspeed_config(plan))
    assert check_deepspeed(text, "ds_config.json", known_keys(), replicas=plan.layout.dp) == []
