"""What the planner decides where the recipe is open, and that it says why."""

from __future__ import annotations

from typing import Any

import pytest

from dsforge.plan.types import Plan
from tests.support.recipes import plan_of

GPT2 = {"model": "gpt2", "cluster": {"gpu": "a100-sxm-80gb"}, "batch": {"seq_len": 1024}}


def why(plan: Plan, key: str) -> tuple[Any, str]:
    (decision,) = [one for one in plan.decisions if one.key == key]
    return decision.value, decision.why


def test_zero_1_with_a_pipeline():
    plan = plan_of({"parallel": {"zero": "auto"}})
    assert plan.layout.zero == 1
    assert why(plan, "parallel.zero")[0] == 1


def test_what_is_written_is_not_decided():
    plan = plan_of()
    assert {decision.key for decision in plan.decisions} == {
        "batch.accumulation_steps",
        "launch.env.DS_ACCELERATOR",
        "launch.env.OMP_NUM_THREADS",
        "launch.launcher",
    }


def test_one_replica_shares_nothing():
    plan = plan_of({"cluster": {"gpus_per_node": 2}, "parallel": {"pp": 1, "dp": 1, "zero": "auto"}})
    assert plan.layout.zero == 0


def test_dp_is_what_the_cluster_leaves():
    plan = plan_of({"parallel": {"dp": "auto"}})
    assert plan.layout.dp == 2
    assert why(plan, "parallel.dp") == (2, "8 ranks / (TP x PP) 4")


def test_micro_batch_defaults_to_one():
    plan = plan_of({"batch": {"micro": "auto"}})
    assert (plan.batch.micro, plan.batch.accumulation_steps) == (1, 16)


def test_tokens_become_whole_steps_rounded_up():
    plan = plan_of({"train": {"steps": None, "tokens": 10_000}})
    assert plan.train.steps == 5  # 32 x 64 = 2,048 tokens a step
    assert plan_of({"train": {"steps": None, "tokens": "10K tokens"}}).train.steps == 5


def test_a_hundred_steps_when_no_length_is_given():
    assert plan_of({"train": {"steps": None}}).train.steps == 100


@pytest.mark.parametrize(
    ("gpu", "zero"),
    # 1.56e9 parameters in fp32 on 8 ranks, in GB: ZeRO-1 14.0, ZeRO-2 8.6, ZeRO-3 3.1; a share of 60 %.
    [("a100-sxm-80gb", 1), ("v100-sxm-16gb", 2)],
)
def test_the_lowest_zero_stage_under_sixty_percent(gpu: str, zero: int):
    plan = plan_of(
        {
            "model": "gpt2-xl",
            "cluster": {"gpu": gpu},
            "parallel": {"tp": 1, "pp": 1, "dp": 8, "zero": "auto"},
            "batch": {"seq_len": 1024},
        }
    )
    assert plan.layout.zero == zero


@pytest.mark.parametrize(
    ("dp", "zero", "reason"),
    # 1.56e9 parameters; 60 % of the GPU are 10.3 GB. On 8 ranks states + fp32 sums take, in GB, ZeRO-1
    # 8.6 + 6.2 and ZeRO-2 5.8 + 0.8; on 2 ranks ZeRO-3 takes 12.5 + 3.1.
    [
        (8, 2, "the lowest with model states and fp32 sums within 60% of the GPU"),
        (2, 3, "the highest: with any, model states and fp32 sums take more than 60% of the GPU"),
    ],
)
def test_fp32_sums_count_when_zero_is_chosen(dp: int, zero: int, reason: str):
    plan = plan_of(
        {
            "model": "gpt2-xl",
            "cluster": {"gpus_per_node": dp, "gpu": "v100-sxm-16gb"},
            "parallel": {"tp": 1, "pp": 1, "dp": dp, "zero": "auto"},
            "batch": {"seq_len": 1024},
            "train": {"precision": "bf16"},
        }
    )
    assert why(plan, "parallel.zero") == (zero, reason)


def test_the_layout_decides_the_engine():
    assert plan_of().layout.engine == "pipeline"
    assert plan_of({"parallel": {"pp": 1, "dp": 4}}).layout.engine == "module"


def test_states_of_a_stage_follow_from_its_padded_share():
    plan = plan_of()
    stage = plan.layout.stages[0]
    # Vocabulary 512 is a multiple of 256 already. Embedding 512 x 64; per layer QKV 128 x 64, output
    # 64 x 64, MLP 3 x 64 x 176, norms 2 x 64. Half of all but the norms on each of two TP ranks.
    split = 512 * 64 + 2 * (128 * 64 + 64 * 64 + 3 * 64 * 176)
    held = split // 2 + 2 * 2 * 64
    assert stage.parameters == split + 2 * 2 * 64
    assert stage.state_bytes_per_rank == {
        "parameters": 4 * held,
        "gradients": 4 * held,
        "optimizer": 8 * held // 2,
    }
    assert stage.fp32_gradient_sum_bytes_per_rank == 0


@pytest.mark.parametrize(("dp", "zero"), [(2, 1), (2, 2), (2, 3), (1, 1)])
def test_bf16_gradients_are_summed_in_fp32_on_top_of_the_states(dp: int, zero: int):
    parallel = {"tp": 1, "pp": 1, "dp": dp, "zero": zero}
    plan = plan_of({"cluster": {"gpus_per_node": dp}, "parallel": parallel, "train": {"precision": "bf16"}})
    (stage,) = plan.layout.stages
    held = stage.parameters  # TP 1, and a vocabulary of 512 needs no padding
    assert stage.fp32_gradient_sum_bytes_per_rank == 4 * (held // dp if zero >= 2 else held)


def test_cpu_ranks_get_one_thread_unless_the_recipe_says_otherwise():
    assert plan_of().launch.env == {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    plan = plan_of({"launch": {"env": {"OMP_NUM_THREADS": "4"}}})
    assert plan.launch.env["OMP_NUM_THREADS"] == "4"
    assert "launch.env.OMP_NUM_THREADS" not in {decision.key for decision in plan.decisions}


def test_gpu_ranks_with_tp_keep_kernels_in_order():
    gpt2 = {**GPT2, "parallel": {"tp": 2, "pp": 1, "dp": 4}}
    without_tp = plan_of({**GPT2, "parallel": {"tp": 1, "pp": 2, "dp": 4}}).launch.env
    assert plan_of(gpt2).launch.env == {**without_tp, "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in without_tp


def test_builtin_corpus_vocabulary_is_the_models_up_to_a_limit():
    assert plan_of().data.builtin_vocab == 512
    assert plan_of({**GPT2, "parallel": {"tp": 1, "pp": 1, "dp": 8}}).data.builtin_vocab == 4096
    own = plan_of({"data": {"train": [[1.0, "data/corpus"]], "tokenizer": "t.json", "workers": 0}})
    assert own.data.model_dump() == {
        "train": ({"weight": 1.0, "prefix": "data/corpus"},),
        "valid": (),
        "builtin_vocab": None,
        "tokenizer": "t.json",
        "workers": 0,
    }


def test_plan_survives_json():
    plan = plan_of()
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_a_validation_is_whole_batches_of_at_least_256_samples():
    assert (plan_of().train.eval_every, plan_of().train.eval_samples) == (0, 0)
    for size, samples in ((32, 256), (96, 288), (512, 512)):
        plan = plan_of({"train": {"eval_every": 5}, "batch": {"global": size}})
        assert (plan.train.eval_every, plan.train.eval_samples) == (5, samples)
        assert {d.key: d.value for d in plan.decisions}["train.eval_samples"] == samples
    own = plan_of({"train": {"eval_every": 5, "eval_samples": 64}})
    assert own.train.eval_samples == 64
    assert "train.eval_samples" not in {d.key for d in own.decisions}


def test_a_plan_carries_blend_and_sinks():
    plan = plan_of(
        {
            "data": {"train": [[7, "a"], [3, "b"]], "valid": "c"},
            "train": {"eval_every": 5},
            "monitor": {"tensorboard": True},
        }
    )
    assert [(one.weight, one.prefix) for one in plan.data.train] == [(7.0, "a"), (3.0, "b")]
    assert [(one.weight, one.prefix) for one in plan.data.valid] == [(1.0, "c")]
    assert plan.data.builtin_vocab is None
    assert plan.sinks == ("tensorboard",)


def test_an_open_zero_stage_is_one_that_the_trainer_has():
    """Whole replicas know stage 0 alone; fully_shard has none, not even for one replica in fp32."""
    open_stage = {"parallel": {"tp": 1, "pp": 1, "dp": 1, "zero": "auto"}, "cluster": {"gpus_per_node": 1}}
    assert plan_of(open_stage, {"trainer": "fsdp"}).layout.zero == 1
    assert plan_of(open_stage, {"trainer": "transformers"}).layout.zero == 0
    ddp = plan_of(open_stage, {"trainer": "ddp", "parallel": {"dp": 2}, "cluster": {"gpus_per_node": 2}})
    assert ddp.layout.zero == 0
    assert "`fsdp` shares them out" in next(d.why for d in ddp.decisions if d.key == "parallel.zero")


@pytest.mark.parametrize(
    ("trainer", "offload", "dp", "stage"),
    [
        ("forge", {"optimizer": "cpu"}, 1, 1),
        ("forge", {"optimizer": "nvme", "path": "/disk"}, 8, 3),
        ("transformers", {"optimizer": "cpu", "parameters": "cpu"}, 8, 3),
    ],
)
def test_zero_follows_from_what_is_offloaded(trainer: str, offload: dict[str, str], dp: int, stage: int):
    parallel = {"tp": 1, "pp": 1, "dp": dp, "zero": "auto"}
    plan = plan_of(
        {"trainer": trainer, "cluster": {"gpus_per_node": dp}, "parallel": parallel, "offload": offload}
    )
    assert why(plan, "parallel.zero") == (stage, "the lowest under which DeepSpeed offloads to these places")


def test_fsdp_offloads_under_the_one_stage_that_shards_parameters():
    offload = {"optimizer": "cpu", "parameters": "cpu"}
    parallel = {"tp": 1, "pp": 1, "dp": 8, "zero": "auto"}
    plan = plan_of({"trainer": "fsdp", "parallel": parallel, "offload": offload})
    assert why(plan, "parallel.zero") == (3, "the only one whose shards of parameters are offloaded")


def test_autotp_holds_the_tables_of_words_whole():
    parallel = {"tp": 2, "pp": 1, "dp": 4, "zero": 0}
    split, whole = (plan_of({"parallel": parallel, "trainer": name}) for name in ("forge", "transformers"))
    found = [plan.layout.stages[0].state_bytes_per_rank["parameters"] for plan in (split, whole)]
    # Embedding and head, half of 512 words of 64 numbers in 4 bytes each.
    assert found[1] - found[0] == 2 * (512 * 64 // 2) * 4
