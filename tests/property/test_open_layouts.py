"""Any layout that a recipe fixes in part, under any trainer: a plan or an error with its reason."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsforge.base.errors import DsforgeError
from dsforge.catalog.engines.capabilities import capabilities
from dsforge.ops.explain import explained
from dsforge.plan.ranking import opened, ranking
from dsforge.plan.resolve import examine, make_plan
from dsforge.recipe.document import Document
from dsforge.recipe.load import LoadedRecipe, check
from dsforge.rules.registry import rules

TRAINERS = ("forge", "transformers", "fsdp", "ddp", "megatron-core")
VALUES: dict[str, tuple[Any, ...]] = {
    "parallel.tp": (1, 2, 3, 8, "auto"),
    "parallel.pp": (1, 2, 8, "auto"),
    "parallel.vp": (1, 2, "auto"),
    "parallel.cp": (1, 2, "auto"),
    "parallel.ep": (1, 2, "auto"),
    "parallel.dp": (1, 8, "auto"),
    "parallel.zero": (0, 1, 2, 3, "auto"),
    "parallel.schedule": ("gpipe", "1f1b", "interleaved", "auto"),
    "parallel.partition": ("uniform", "parameters"),
    "parallel.sequence_parallel": (True, False, "auto"),
    "batch.global": (12, 32),
    "batch.micro": (1, 3, 16, "auto"),
    "train.recompute": ("none", "selective", "full", "auto"),
    "offload.optimizer": ("none", "cpu", "nvme", "auto"),
    "offload.parameters": ("none", "cpu", "nvme", "auto"),
    "offload.path": ("/disk",),
}
layouts = st.fixed_dictionaries({}, optional={key: st.sampled_from(some) for key, some in VALUES.items()})


def loaded(trainer: str, model: str, layout: dict[str, Any], gpu: str = "h100-sxm-80gb") -> LoadedRecipe:
    data: dict[str, Any] = {
        "version": 1,
        "model": model,
        "trainer": trainer,
        "cluster": {"nodes": 1, "gpus_per_node": 8, "gpu": gpu},
        "batch": {"global": 32, "seq_len": 1024},
    }
    for key, value in layout.items():
        section, name = key.split(".")
        data.setdefault(section, {})[name] = value
    document = Document(data=json.loads(json.dumps(data)))
    return LoadedRecipe(check(document), Path("open.yaml"), "", document)


@settings(max_examples=40, deadline=None)
@given(
    trainer=st.sampled_from(TRAINERS),
    model=st.sampled_from(["gpt2", "llama3-8b", "mixtral-8x7b"]),
    gpu=st.sampled_from(["h100-sxm-80gb", "gaudi-3-128gb", "cpu"]),
    layout=layouts,
    everything=st.booleans(),
)
def test_every_layout_is_planned_or_refused(
    trainer: str, model: str, gpu: str, layout: dict[str, Any], everything: bool
):
    recipe = opened(loaded(trainer, model, layout, gpu), everything=everything)
    for asked in (make_plan, lambda one: ranking(one, top=2, objective="time")):
        # Anything else is a fault of the search, for which the command line ends with 5.
        with contextlib.suppress(DsforgeError):
            asked(recipe)


REFUSED = [
    (trainer, key, value)
    for trainer in TRAINERS
    for key in ("train.recompute", "parallel.zero", "offload.optimizer")
    for value in VALUES[key]
    if value != "auto" and not capabilities(trainer).takes(key, value)
]


@pytest.mark.parametrize(("trainer", "key", "value"), REFUSED)
def test_a_fixed_value_that_the_trainer_refuses_is_what_the_search_reports(
    trainer: str, key: str, value: Any
):
    recipe = loaded(trainer, "llama3-8b", {"parallel.tp": "auto", "parallel.pp": "auto", key: value})
    first = examine(recipe)[0]
    assert (first.code, first.key) == ("DSF140", key)
    for ask in (make_plan, lambda one: explained(one, ["parallel.tp"], "time")):
        with pytest.raises(DsforgeError) as caught:
            ask(recipe)
        assert (caught.value.code, caught.value.exit_code) == ("DSF140", 1)
        assert f"`{key}: {value}` cannot be honoured" in caught.value.message


def test_what_no_search_can_change_is_told_before_what_it_did_not_find():
    recipe = opened(loaded("megatron-core", "deepseek-v3", {}), everything=True)
    assert [one.code for one in examine(recipe)] == ["DSF141", "DSF770"]
    # All keys are open already: nothing tells to open more of them.
    assert examine(recipe)[1].hint == "more GPUs or a smaller model"
    some = loaded("forge", "llama3-70b", {"parallel.tp": "auto", "parallel.pp": 1})
    (alone,) = examine(some)
    assert alone.code == "DSF770"
    assert alone.hint is not None
    assert "--search" in alone.hint


def test_what_runs_nowhere_here_is_planned_with_a_warning():
    recipe = loaded("forge", "gpt2", {}, "gaudi-3-128gb")
    looked_at = make_plan(recipe, refuse=False)
    assert [(one["code"], one["severity"]) for one in looked_at.findings] == [("DSF760", "warning")]
    with pytest.raises(DsforgeError) as caught:
        make_plan(recipe, allow=frozenset(rules()))
    assert caught.value.code == "DSF760"


def test_states_on_the_host_are_not_counted_on_the_gpu():
    on_gpu = make_plan(loaded("fsdp", "llama3-70b", {"parallel.zero": 3}), allow=frozenset(["DSF160"]))
    assert "DSF160" in {one["code"] for one in on_gpu.findings}
    (stage,) = on_gpu.layout.stages
    assert stage.total_bytes_per_rank == pytest.approx((4 + 4 + 8) * 70_553_706_496 / 8, rel=1e-6)
    plan = make_plan(opened(loaded("fsdp", "llama3-70b", {}), everything=True))
    assert (plan.offload.optimizer, plan.offload.parameters) == ("cpu", "cpu")
    assert plan.findings == ()
    assert plan.layout.fullest_rank_bytes == 0
