"""The JSON against the real library: accepted at the true data-parallel size, and every key is read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dsforge.plan.resolve import make_plan
from dsforge.plan.types import Plan
from dsforge.recipe.load import load_recipe
from dsforge.render.deepspeed_config import deepspeed_config
from tests.support.recipes import CONFIGURED, plan_of

_ON_DISK = {"optimizer": "nvme", "parameters": "cpu", "path": "/disk"}
_PLAIN = {"tp": 1, "pp": 1, "dp": 8}
CHANGED: dict[str, dict[str, Any]] = {
    "on-cpu-lion": {"offload": {"optimizer": "cpu"}, "optimizer": {"type": "lion"}},
    "fp16": {"cluster": {"gpu": "v100-sxm-32gb"}, "train": {"precision": "fp16"}},
    "on-disk": {"parallel": {**_PLAIN, "zero": 3}, "offload": _ON_DISK},
    "on-disk-gpu": {
        "cluster": {"gpu": "h100-sxm-80gb"},
        "parallel": {**_PLAIN, "zero": 3},
        "offload": _ON_DISK,
    },
    "weights-on-disk": {
        "cluster": {"gpu": "h100-sxm-80gb"},
        "parallel": {"tp": 2, "pp": 1, "dp": 4, "zero": 3},
        "offload": {"optimizer": "cpu", "parameters": "nvme", "path": "/disk"},
        "train": {"precision": "bf16"},
    },
    "autotp": {"parallel": {"tp": 2, "pp": 1, "dp": 4, "zero": 2}, "trainer": "transformers"},
    "autotp-qwen3": {
        "parallel": {"tp": 2, "pp": 1, "dp": 4, "zero": 1},
        "trainer": "transformers",
        "model": {"arch": "qwen3"},
    },
}
PLANS = [make_plan(load_recipe(path)) for path in CONFIGURED] + [
    plan_of({"name": name}, changes) for name, changes in CHANGED.items()
]


class Recording(dict[str, Any]):
    """A mapping that remembers which keys were looked up, in itself and in the mappings inside."""

    def __init__(self, value: dict[str, Any]) -> None:
        super().__init__({k: Recording(v) if isinstance(v, dict) else v for k, v in value.items()})
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)

    def never_read(self, prefix: str = "") -> list[str]:
        inner = [
            name
            for key, value in self.items()
            if isinstance(value, Recording) and key in self.read
            for name in value.never_read(f"{prefix}{key}.")
        ]
        return [f"{prefix}{key}" for key in self if key not in self.read] + inner


@pytest.fixture(scope="module")
def _one_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    # Without a process group the library takes the world for one rank and never asks the mpu.
    import torch
    from deepspeed.comm import comm

    from dsforge.train.cpu_support import skip_shared_memory_build

    skip_shared_memory_build(torch.device("cpu"))
    store = tmp_path_factory.mktemp("store") / "store"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    comm.init_distributed("gloo", auto_mpi_discovery=False, verbose=False)
    yield
    comm.destroy_process_group()
    comm.cdb = None


def _read_by_the_library(config: dict[str, Any], dp: int) -> tuple[Any, Recording]:
    from deepspeed.runtime.config import DeepSpeedConfig

    recording = Recording(config)
    mpu = SimpleNamespace(get_data_parallel_world_size=lambda: dp)
    return DeepSpeedConfig(recording, mpu=mpu), recording


def _ignored(config: dict[str, Any], dp: int) -> list[str]:
    """Return keys that the library's configuration never looks at.

    Some sections are unpacked into models of the library, where a key must be a field. The optimizer's own
    are handed on whole: the engine takes its marks out, the rest must be arguments of the optimizer.
    """
    import torch
    from deepspeed.runtime.config import ADAM_W_MODE, TORCH_ADAM_PARAM

    seen, recording = _read_by_the_library(config, dp)
    zero = seen.zero_config
    models = {
        "zero_optimization": zero,
        "zero_optimization.offload_optimizer": zero.offload_optimizer,
        "zero_optimization.offload_param": zero.offload_param,
        "bf16": seen.bfloat16_config,
        "fp16": seen.float16_config,
        "tensor_parallel": seen.tensor_parallel_config,
    }
    held = {name: type(model) for name, model in models.items() if model is not None}
    fields = {
        f"{name}.{about.alias or field}"
        for name, model in held.items()
        for field, about in model.model_fields.items()
    }
    if "optimizer" in config:
        assert config["optimizer"]["type"] == "AdamW"
        marks = (TORCH_ADAM_PARAM, ADAM_W_MODE)
        rest = {key: value for key, value in config["optimizer"]["params"].items() if key not in marks}
        torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], **rest)
    never_read = [key for key in recording.never_read() if key not in fields]
    return [key for key in never_read if not key.startswith("optimizer.params.")]


@pytest.mark.usefixtures("_one_process")
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_the_library_takes_it_at_the_data_parallel_size(plan: Plan):
    seen, _ = _read_by_the_library(deepspeed_config(plan), plan.layout.dp)
    assert seen.train_batch_size == plan.batch.global_size
    assert seen.train_micro_batch_size_per_gpu == plan.batch.micro
    assert seen.gradient_accumulation_steps == plan.batch.accumulation_steps
    assert seen.zero_optimization_stage == plan.layout.zero
    assert seen.gradient_clipping == plan.optimizer.grad_clip
    assert seen.bfloat16_config.enabled is (plan.train.precision == "bf16")
    assert seen.float16_config.enabled is (plan.train.precision == "fp16")


@pytest.mark.usefixtures("_one_process")
def test_the_loss_scale_of_fp16_is_that_of_every_trainer():
    from deepspeed.runtime.fp16.loss_scaler import CreateLossScaler
    from torch import float16

    from dsforge.train.loss_scale import LossScale

    (plan,) = (one for one in PLANS if one.train.precision == "fp16")
    read = _read_by_the_library(deepspeed_config(plan), plan.layout.dp)[0].float16_config
    theirs = CreateLossScaler(float16, read.loss_scale, read.loss_scale == 0, read.dynamic_loss_scale_args())
    ours, calm = LossScale(), 2000
    for overflows in (True, *[False] * calm, True, True):
        theirs.update_scale(overflows)
        ours.follow(math.inf if overflows else 1.0)
        if not overflows and ours.calm_steps == 0:
            # DeepSpeed raises a step later.
            assert ours.value == 2 * theirs.cur_scale
            theirs.update_scale(False)
        assert theirs.cur_scale == ours.value
    assert ours.value == 2.0**14


@pytest.mark.usefixtures("_one_process")
def test_the_library_refuses_another_data_parallel_size():
    plan = plan_of()
    with pytest.raises(AssertionError, match="train_batch_size is not equal"):
        _read_by_the_library(deepspeed_config(plan), plan.layout.world_size)


@pytest.mark.usefixtures("_one_process")
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_every_key_is_read(plan: Plan):
    assert _ignored(deepspeed_config(plan), plan.layout.dp) == []


@pytest.mark.usefixtures("_one_process")
def test_a_key_that_nobody_reads_would_be_seen():
    plan = plan_of()
    config = deepspeed_config(plan)
    assert _ignored({**config, "zero_stage": 1}, plan.layout.dp) == ["zero_stage"]
    bogus = {**config, "optimizer": {**config["optimizer"], "legacy": True}}
    assert "optimizer.legacy" in _ignored(bogus, plan.layout.dp)
    with pytest.raises(ValueError, match="bogus"):
        _ignored({**config, "zero_optimization": {"stage": 1, "bogus": 1}}, plan.layout.dp)
    parameters = {**config["optimizer"]["params"], "bogus": 1}
    with pytest.raises(TypeError, match="bogus"):
        _ignored({**config, "optimizer": {"type": "AdamW", "params": parameters}}, plan.layout.dp)


@pytest.mark.usefixtures("_one_process")
def test_stages_send_whole_what_differs_between_shards():
    for split, partitioned in ((False, True), (True, False)):
        plan = plan_of({"parallel": {"sequence_parallel": split}})
        seen, _ = _read_by_the_library(deepspeed_config(plan), plan.layout.dp)
        assert seen.pipeline["pipe_partitioned"] is seen.pipeline["grad_partitioned"] is partitioned
    one_stage = plan_of({"parallel": {"sequence_parallel": True, "pp": 1, "dp": 4}})
    assert "pipeline" not in deepspeed_config(one_stage)


def test_values_are_the_recipes():
    optimizer = {"betas": [0.8, 0.9], "eps": 1e-6, "weight_decay": 0.0, "grad_clip": 0.3}
    config = deepspeed_config(plan_of({"optimizer": optimizer}))
    assert config["optimizer"]["params"] == {
        "lr": 3e-4,
        "betas": [0.8, 0.9],
        "eps": 1e-6,
        "weight_decay": 0.0,
        "torch_adam": True,
        "fused": True,
    }
    assert (config["train_batch_size"], config["gradient_accumulation_steps"]) == (32, 8)
    assert config["gradient_clipping"] == 0.3
    assert config["zero_optimization"] == {"stage": 1}
    assert "bf16" not in config
    assert "data_types" not in config
    bf16 = deepspeed_config(plan_of({"train": {"precision": "bf16"}}))
    assert (bf16["bf16"], bf16["data_types"]) == ({"enabled": True}, {"grad_accum_dtype": "fp32"})


def test_gpus_use_the_librarys_own_adam():
    changes = {"model": "gpt2", "cluster": {"gpu": "a100-sxm-80gb"}, "parallel": {"tp": 1, "dp": 4}}
    assert "torch_adam" not in deepspeed_config(plan_of(changes))["optimizer"]["params"]


def test_no_value_is_left_to_the_library(tmp_path: Path):
    def leaves(node: Any) -> Iterator[Any]:
        if isinstance(node, dict | list):
            for inner in node.values() if isinstance(node, dict) else node:
                yield from leaves(inner)
        else:
            yield node

    for plan in PLANS:
        assert "auto" not in list(leaves(deepspeed_config(plan)))


def test_offload_is_written_out():
    changes = CHANGED["on-disk-gpu"]
    config = deepspeed_config(plan_of(changes))
    disk = {"device": "nvme", "pin_memory": True, "nvme_path": "/disk"}
    assert config["zero_optimization"] == {
        "stage": 3,
        "sub_group_size": 100_000_000,
        "offload_optimizer": {**disk, "buffer_count": 4},
        "offload_param": {"device": "cpu", "pin_memory": True},
    }
    assert config["aio"]["queue_depth"] == 8
    on_cpu = deepspeed_config(plan_of(CHANGED["on-cpu-lion"]))
    assert on_cpu["zero_optimization"]["offload_optimizer"] == {"device": "cpu", "pin_memory": False}
    assert on_cpu["zero_force_ds_cpu_optimizer"] is False
    assert {"optimizer", "aio"}.isdisjoint(on_cpu)


def test_weights_on_a_disk_have_buffers_and_are_read_when_they_are_used():
    config = deepspeed_config(plan_of(CHANGED["weights-on-disk"]))
    # Half of 512 words of width 64 lie on a rank of two shards, a quarter of it on each of its replicas.
    assert config["zero_optimization"] == {
        "stage": 3,
        "sub_group_size": 100_000_000,
        "stage3_prefetch_bucket_size": 0,
        "stage3_max_reuse_distance": 0,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "offload_param": {
            "device": "nvme",
            "pin_memory": True,
            "nvme_path": "/disk",
            "buffer_count": 5,
            "buffer_size": 512 * 64 // 2 // 4,
            "max_in_cpu": 0,
        },
    }
    assert "aio" in config


@pytest.mark.usefixtures("_one_process")
def test_every_layer_of_a_model_is_split_as_the_library_reads_it():
    from deepspeed.module_inject.autotp_config import PartitionType

    plan = plan_of(CHANGED["autotp-qwen3"])
    seen, _ = _read_by_the_library(deepspeed_config(plan), plan.layout.dp)
    config = seen.tensor_parallel_config.get_partition_config_object()
    at = "model.model.layers.3"

    def kind(name: str) -> Any:
        spec = config.find_matching_spec(f"{at}.{name}.weight", "qwen3")
        return spec and (spec.partition_type, spec.grad_allreduce)

    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
        assert kind(name) == (PartitionType.COLUMN, False)
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        assert kind(name) == (PartitionType.ROW, False)
    for name in ("self_attn.q_norm", "self_attn.k_norm"):
        assert kind(name) == (PartitionType.SKIP, True)
    assert kind("input_layernorm") is None
