"""Every layout trains to the loss of one plain process; layouts known to be wrong do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

FP32_TOLERANCE = 1e-5
STEPS = 20

RECIPE = """\
version: 1
model:
  {{arch: {arch}, layers: 4, hidden: 64, heads: 4, kv_heads: {kv_heads}, ffn_hidden: 192,
   vocab: 509, tied: {tied}}}
cluster: {{gpus_per_node: {ranks}, gpu: cpu}}
parallel: {{tp: {tp}, pp: {pp}, dp: {dp}, zero: {zero}}}
batch: {{global: 16, micro: 2, seq_len: 64}}
train:
  {{steps: 20, precision: {precision}, recompute: {recompute}, recompute_every: {recompute_every},
   dropout: {dropout}, attention_dropout: {dropout}, eval_every: 8,
   checks: {{gradients_every: 4, parameters_every: 7, modules: true}}}}
optimizer: {{lr: 2.0e-3, warmup_steps: 2, grad_clip: 0.3}}
"""


def verify(
    tmp_path: Path, *words: str, environ: dict[str, str] | None = None, **wanted: Any
) -> tuple[int, dict[str, Any]]:
    values = {
        "arch": "gpt",
        "tied": "true",
        "precision": "fp32",
        "recompute": "none",
        "recompute_every": 1,
        "dropout": 0.0,
        "zero": "auto",
        "tp": 1,
        "pp": 1,
        "dp": 1,
        **wanted,
    }
    values["ranks"] = values["tp"] * values["pp"] * values["dp"]
    values["kv_heads"] = 4 if values["arch"] == "gpt" else 2
    recipe = tmp_path / "layout.yaml"
    recipe.write_text(RECIPE.format(**values))
    command = [sys.executable, "-m", "dsforge.cli", "verify", str(recipe), "--json", "--steps", str(STEPS)]
    command += ["--runs", str(tmp_path / "runs"), "--max-ranks", "8", *words]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, **(environ or {})},
        timeout=900,
        check=False,
    )
    assert done.stdout, done.stderr[-4000:]
    return done.returncode, json.loads(done.stdout)


def assert_same(code: int, result: dict[str, Any], **layout: Any) -> None:
    assert code == 0, result
    assert result["max_abs_loss_diff"] <= FP32_TOLERANCE
    assert len(result["losses"]) == len(result["reference_losses"]) == STEPS
    largest = max(abs(a - b) for a, b in zip(result["losses"], result["reference_losses"], strict=True))
    assert largest == result["max_abs_loss_diff"]
    assert result["max_abs_validation_diff"] <= FP32_TOLERANCE
    assert (
        list(result["validation_losses"]) == list(result["reference_validation_losses"]) == ["8", "16", "20"]
    )
    assert result["losses"][0] - result["losses"][-1] >= 1.0
    assert result["clipped_steps"] >= 0.8 * STEPS
    # Nothing of a parameter is lost between ranks: a shard put in a wrong place is off by about 0.02.
    assert result["max_abs_param_diff"] <= 1e-3
    assert {key: result["layout"][key] for key in layout} == layout


@pytest.mark.parametrize(
    ("tp", "pp", "dp", "arch", "recompute", "recompute_every", "words"),
    [
        (1, 1, 2, "gpt", "full", 1, ()),
        (2, 1, 1, "llama", "none", 1, ()),
        (1, 2, 1, "gpt", "selective", 1, ()),
        (2, 2, 1, "gpt", "full", 2, ("parallel.schedule=gpipe", "parallel.sequence_parallel=true")),
    ],
    ids=str,
)
def test_small_layouts_with_dropout_equal_the_reference(
    tmp_path, tp, pp, dp, arch, recompute, recompute_every, words
):
    wanted = {"tp": tp, "pp": pp, "dp": dp, "arch": arch, "dropout": 0.1}
    wanted |= {"recompute": recompute, "recompute_every": recompute_every}
    code, result = verify(tmp_path, *words, **wanted)
    assert_same(code, result, attention_dropout=0.1, **wanted)
    assert not any(change["key"].startswith("parallel.") for change in result["changed"])


@pytest.mark.parametrize("tied", ["true", "false"])
@pytest.mark.parametrize("arch", ["gpt", "llama"])
def test_2x2x2_equals_the_reference(tmp_path, arch, tied):
    code, result = verify(tmp_path, tp=2, pp=2, dp=2, arch=arch, tied=tied)
    assert_same(code, result, tp=2, pp=2, dp=2, zero=1, arch=arch, tied=tied == "true")


@pytest.mark.parametrize(("zero", "where"), [(0, "none"), (2, "cpu"), (3, "none")])
def test_zero_stages_equal_the_reference(tmp_path, zero, where):
    code, result = verify(tmp_path, f"offload.optimizer={where}", dp=2, zero=zero, arch="llama", tied="false")
    assert_same(code, result, dp=2, zero=zero)


def test_zero_3_with_tensor_and_sequence_parallelism_and_recompute_equals_the_reference(tmp_path):
    words = ("parallel.sequence_parallel=true",)
    code, result = verify(tmp_path, *words, tp=2, dp=2, zero=3, recompute="full")
    assert_same(code, result, tp=2, dp=2, zero=3)


@pytest.mark.parametrize(
    ("zero", "arch", "tied", "recompute", "recompute_every"),
    [(1, "gpt", "true", "none", 1), (2, "llama", "false", "selective", 1), (3, "llama", "true", "full", 2)],
)
def test_hugging_faces_models_equal_the_reference(tmp_path, zero, arch, tied, recompute, recompute_every):
    words = {"zero": zero, "arch": arch, "tied": tied}
    words |= {"recompute": recompute, "recompute_every": recompute_every}
    code, result = verify(tmp_path, "trainer=transformers", dp=2, **words)
    assert_same(code, result, dp=2, **(words | {"tied": tied == "true"}))


def test_hugging_faces_experts_equal_the_reference(tmp_path):
    """Qwen3-MoE's shape, a dense layer in it, dealt out by ZeRO-3, recomputed, its experts kept balanced."""
    words = ("trainer=transformers", "train.balance_loss=0.05")
    experts = "model.experts={count: 4, active: 2, ffn_hidden: 96, dense_layers: [1]}"
    wanted = {"dp": 2, "zero": 3, "arch": "qwen3", "tied": "false", "recompute": "full"}
    code, result = verify(tmp_path, *words, experts, **wanted)
    assert_same(code, result, dp=2, zero=3, arch="qwen3", recompute="full")
    assert not any(change["key"].startswith("model.experts") for change in result["changed"])


def test_hugging_faces_layers_split_by_autotp_equal_the_reference(tmp_path):
    code, result = verify(tmp_path, "trainer=transformers", tp=2, dp=2, zero=2, arch="llama", tied="false")
    assert_same(code, result, tp=2, dp=2, zero=2)


@pytest.mark.parametrize(
    ("trainer", "zero", "arch", "tied", "recompute", "where"),
    [
        ("fsdp", 3, "llama", "true", "full", "cpu"),
        ("fsdp", 2, "gpt", "true", "none", "none"),
        ("ddp", 0, "llama", "false", "full", "none"),
    ],
)
def test_pytorchs_own_replicas_equal_the_reference(tmp_path, trainer, zero, arch, tied, recompute, where):
    words = {"zero": zero, "arch": arch, "tied": tied, "recompute": recompute}
    changes = [f"trainer={trainer}", f"offload.parameters={where}", f"offload.optimizer={where}"]
    code, result = verify(tmp_path, *changes, dp=2, **words)
    assert_same(code, result, dp=2, zero=zero, arch=arch, tied=tied == "true", recompute=recompute)


def test_megatron_cores_interleaved_stages_equal_the_reference(tmp_path):
    """Virtual stages, split sequences, distributed optimizer, recomputation, dropout and a tied weight."""
    words = ("parallel.vp=2", "parallel.schedule=interleaved", "parallel.partition=uniform")
    words += ("trainer=megatron-core", "parallel.sequence_parallel=true")
    wanted = {"tp": 2, "pp": 2, "dp": 2, "zero": 1, "recompute": "full", "dropout": 0.1}
    code, result = verify(tmp_path, *words, **wanted)
    assert_same(code, result, attention_dropout=0.1, **wanted)
    assert not any(change["key"].startswith("parallel.") for change in result["changed"])


def test_megatron_cores_experts_equal_the_reference(tmp_path):
    """Experts shared out over replicas of both stages, a balance loss that counts, blocks of two layers."""
    words = ("trainer=megatron-core", "parallel.ep=2", "train.balance_loss=0.05")
    words += ("model.experts={count: 4, active: 2, ffn_hidden: 96, dense_layers: [1]}",)
    wanted = {"arch": "mixtral", "tied": "false", "pp": 2, "dp": 2, "zero": 1}
    wanted |= {"recompute": "full", "recompute_every": 2}
    code, result = verify(tmp_path, *words, **wanted)
    assert_same(code, result, **{**wanted, "tied": False})
    assert not any(change["key"].startswith(("parallel.", "model.experts")) for change in result["changed"])


def test_bf16_with_a_pipeline_stays_within_its_tolerance(tmp_path):
    code, result = verify(tmp_path, tp=2, pp=2, precision="bf16", recompute="full", arch="llama", tied="true")
    assert code == 0, result
    assert result["layout"]["precision"] == "bf16"
    assert 0 < result["max_abs_loss_diff"] <= result["tolerance"]


def test_zero_0_with_a_pipeline_is_refused_and_shown_to_be_wrong(tmp_path):
    code, refusal = verify(tmp_path, pp=2, zero=0)
    assert code == 1
    assert refusal["error"]["code"] == "DSF121"
    code, result = verify(tmp_path, "--allow", "DSF121", pp=2, zero=0)
    assert code == 1
    assert result["passed"] is False
    assert result["max_abs_loss_diff"] > 10 * FP32_TOLERANCE


def test_a_plainly_split_swiglu_weight_is_found(tmp_path):
    """The fused [gate; up] weight has stride 2: cut as one block, shards hold only gate or only up."""
    fault = tmp_path / "fault"
    fault.mkdir()
    (fault / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'dsforge.train.main' in sys.orig_argv[1:4]:\n"
        "    from dsforge.train import slicing\n"
        "    right = slicing.shard_rows\n"
        "    slicing.shard_rows = lambda size, shards, index, stride: right(size, shards, index, 1)\n"
    )
    code, result = verify(tmp_path, environ={"PYTHONPATH": str(fault)}, tp=2, arch="llama", tied="false")
    assert code == 1
    assert result["passed"] is False
    assert result["max_abs_loss_diff"] > 10 * FP32_TOLERANCE
