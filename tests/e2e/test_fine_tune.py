"""Hugging Face's own model trained from weights that transformers wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_resume import kill_a_rank_after, metrics, the_run
from tests.support.recipes import ROOT

pytestmark = pytest.mark.e2e

RECIPE = """\
version: 1
name: tuned
model: weights/config.json
trainer: transformers
cluster: {gpus_per_node: 2, gpu: cpu}
parallel: {zero: 3}
batch: {global: 8, micro: 2, seq_len: 32}
train: {steps: 60, precision: fp32, recompute: full}
optimizer: {lr_schedule: constant, lr: 1.0e-3}
checkpoint: {init: weights, dir: kept, every_steps: 10, keep: 2}
"""
VOCAB, SEED = 300, 1234


def write_weights(folder: Path) -> None:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(5)
    config = Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.2,
        tie_word_embeddings=True,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder, max_shard_size="20KB")


def own_loss(folder: Path) -> float:
    """Return transformers' own mean loss of the weights in a folder on the samples of the first step."""
    import numpy as np
    import torch
    from transformers import AutoModelForCausalLM

    from dsforge.data.prepare import builtin_corpus
    from dsforge.train.reader import IndexedCorpus

    corpus = IndexedCorpus(builtin_corpus(VOCAB), 32, SEED, VOCAB)
    samples = torch.from_numpy(np.stack([corpus.sample(number) for number in range(8)]))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model(input_ids=samples, labels=samples).loss.item()


def start(folder: Path, *changes: str) -> subprocess.Popen[str]:
    folder.mkdir()
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "weights").symlink_to(folder.parent / "weights")
    command = [sys.executable, "-m", "dsforge.cli", "launch", "recipe.yaml", "--json", *changes]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> list[float]:
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    losses: list[float] = json.loads(out)["losses"]
    return losses


@pytest.mark.parametrize("trainer", ["transformers", "fsdp"])
def test_the_first_loss_is_hugging_faces_own_and_a_kill_changes_none(tmp_path, trainer):
    write_weights(tmp_path / "weights")
    losses = finish(start(tmp_path / "undisturbed", f"trainer={trainer}"))
    assert losses[0] == pytest.approx(own_loss(tmp_path / "weights"), abs=1e-5)
    assert len(losses) == 60
    assert losses[0] - losses[-1] > 0.5

    killed = start(tmp_path / "killed", f"trainer={trainer}", "launch.restarts=1")
    kill_a_rank_after(tmp_path / "killed", 12)
    assert finish(killed) == losses
    second = metrics(the_run(tmp_path / "killed"), 2)
    assert second[0]["step"] > 10


def test_the_shipped_recipe_is_smoked_with_weights_and_text_found_everywhere(tmp_path):
    recipe = ROOT / "recipes" / "hf-finetune.yaml"
    command = [sys.executable, "-m", "dsforge.cli", "smoke", str(recipe), "--json", "--max-ranks", "2"]
    done = subprocess.run(
        [*command, "--runs", str(tmp_path)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert all(check["passed"] for check in result["checks"])
    assert result["layout"] == {"tp": 1, "pp": 1, "cp": 1, "dp": 2, "zero": 3}
    told = {change["key"]: change["used"] for change in result["shrunk"]}
    assert (told["checkpoint.init"], told["data"]) == (None, "the built-in corpus")
