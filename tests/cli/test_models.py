"""Models by preset and by config.json: planned exactly, and refused where forge does not build them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RECIPE = """\
version: 1
model: {model}
cluster: {{nodes: 1, gpus_per_node: 8, gpu: cpu}}
parallel: {{tp: 2, pp: 2, dp: 2, zero: 1}}
batch: {{global: 32, micro: 2, seq_len: 64}}
train: {{steps: 30, precision: fp32}}
"""
QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
LLAMA = {**QWEN3, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}


def _recipe(folder: Path, model: str) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(RECIPE.format(model=model), "utf-8")
    return path


def _config(folder: Path, values: Any) -> str:
    (folder / "models").mkdir()
    text = values if isinstance(values, str) else json.dumps(values)
    (folder / "models" / "config.json").write_text(text, "utf-8")
    return "models/config.json"


def test_a_config_is_found_beside_the_recipe_and_planned_exactly(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    recipe = _recipe(tmp_path, _config(tmp_path, LLAMA))
    monkeypatch.chdir("/")
    outcome = cli("plan", recipe, "--json")
    assert outcome.code == 0
    plan = json.loads(outcome.out)
    # Qwen3-0.6B without its norms on queries and keys: 28 x 2 x 128 parameters fewer.
    assert plan["parameters"]["total"] == plan["parameters"]["active"] == 596_049_920 - 28 * 256
    assert (plan["model"]["arch"], plan["model"]["head_dim"]) == ("llama", 128)


def test_a_model_that_forge_does_not_build_is_planned_but_refused(cli: Callable[..., Any], tmp_path: Path):
    recipe = _recipe(tmp_path, _config(tmp_path, QWEN3))
    plan = cli("plan", recipe, "--json")
    assert plan.code == 1
    parts = json.loads(plan.out)
    assert parts["parameters"]["total"] == 596_049_920
    # The tied head is a copy on the last stage.
    held = sum(stage["parameters"] for stage in parts["layout"]["stages"])
    assert held == 596_049_920 + 151_936 * 1024
    assert "error[DSF141]" in plan.err
    assert "norms on queries and keys" in plan.err


@pytest.mark.parametrize("command", [("render",), ("launch",), ("smoke",), ("verify", "--allow", "DSF141")])
@pytest.mark.parametrize("model", ["qwen3-0.6b", "bloom-560m"])
def test_nothing_starts_or_renders_another_model_under_its_name(
    cli: Callable[..., Any],
    tmp_path: Path,
    command: tuple[str, ...],
    model: str,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    outcome = cli(command[0], _recipe(tmp_path, model), *command[1:])
    assert outcome.code == 1
    assert "DSF141" in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.yaml"]


@pytest.mark.parametrize(
    ("values", "code", "exit_code"),
    [
        ("{", "DSF032", 2),
        ("[" * 100_000, "DSF032", 2),
        ("[]", "DSF032", 2),
        ('{"model_type": "llama", "model_type": "opt"}', "DSF032", 2),
        ({**QWEN3, "model_type": "mamba"}, "DSF033", 1),
        ({**QWEN3, "num_hidden_layers": None}, "DSF034", 1),
    ],
)
def test_a_bad_config_is_a_finding_at_the_model_key(
    cli: Callable[..., Any], tmp_path: Path, values: Any, code: str, exit_code: int
):
    outcome = cli("validate", _recipe(tmp_path, _config(tmp_path, values)))
    assert outcome.code == exit_code
    assert f"error[{code}]" in outcome.err
    assert f"{tmp_path / 'recipe.yaml'}:2:1" in outcome.err


def test_a_missing_config_is_named(cli: Callable[..., Any], tmp_path: Path):
    outcome = cli("plan", _recipe(tmp_path, "gone/config.json"))
    assert outcome.code == 2
    assert "gone/config.json cannot be read: No such file" in outcome.err


def test_presets_show_counts_a_config_too(cli: Callable[..., Any], tmp_path: Path):
    path = tmp_path / _config(tmp_path, QWEN3)
    shown = json.loads(cli("presets", "show", path, "--json").out)
    assert shown["parameters"] == 596_049_920
    assert shown["trainers"] == ["ddp", "fsdp", "megatron-core", "transformers"]
    assert shown["differs"] == {
        "ddp": [],
        "forge": ["norms on queries and keys"],
        "fsdp": [],
        "megatron-core": ["norms on queries and keys"],
        "transformers": [],
    }


def test_presets_show_active_parameters(cli: Callable[..., Any]):
    shown = json.loads(cli("presets", "show", "mixtral-8x7b", "--json").out)
    assert (shown["parameters"], shown["active_parameters"]) == (46_702_792_704, 12_879_925_248)
    listed = {row["name"]: row for row in json.loads(cli("presets", "list", "--json").out)["models"]}
    assert listed["deepseek-v3"]["active_parameters"] == 37_552_282_624
    assert [listed[name]["trainers"] for name in ("llama3-8b", "qwen2.5-7b", "deepseek-v3")] == [
        ["ddp", "forge", "fsdp", "megatron-core", "transformers"],
        ["ddp", "fsdp", "transformers"],
        [],
    ]
    assert (
        "ddp, forge to 4096 tokens, fsdp, megatron-core to 4096 tokens, transformers"
        in cli("presets", "list").out
    )
    assert "12.88B" in cli("presets", "list").out


def test_a_starter_says_why_a_model_is_refused(cli: Callable[..., Any]):
    outcome = cli("init", "--model", "gemma2-2b", "--gpus", 8)
    assert (outcome.code, outcome.out) == (1, "")
    assert "4 norms a layer" in outcome.err


def test_a_starter_stays_inside_the_window(cli: Callable[..., Any]):
    assert "seq_len: 2047}" in cli("init", "--model", "phi-3-mini-4k", "--gpus", 8).out
