"""`validate` and `init` on other tools' files: streams, exit codes, hostile files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support.recipes import ROOT, SMALL, write

Cli = Callable[..., Any]
FOREIGN = ROOT / "tests/data/foreign"
GIVEN = ("--model", "gpt2", "--gpus", "8", "--gpu", "a100-sxm-80gb", "--seq-len", "1024")


def test_validate_takes_every_kind_at_once(cli: Cli, tmp_path: Path):
    recipe = write(tmp_path, SMALL)
    hosts = tmp_path / "hostfile"
    hosts.write_text("node1 slots = 8\n", "utf-8")
    env = tmp_path / ".deepspeed_env"
    env.write_text("\nWANDB_API_KEY=abc123\n", "utf-8")
    shown = cli(
        "validate",
        "--json",
        recipe,
        FOREIGN / "bloom_like.json",
        FOREIGN / "accelerate_fsdp.yaml",
        hosts,
        env,
    )
    assert shown.code == 1
    assert [one["ok"] for one in shown.json["recipes"]] == [True]
    rows = [(one["kind"], one["engine"], one["ok"]) for one in shown.json["foreign"]]
    assert rows == [
        ("deepspeed", "deepspeed 0.19.8", True),
        ("accelerate", "accelerate 1.x", True),
        ("hostfile", "launcher of deepspeed 0.19.8", False),
        ("env", "launcher of deepspeed 0.19.8", False),
    ]
    codes = [one["code"] for file in shown.json["foreign"] for one in file["findings"]]
    assert codes == ["DSF621", "DSF670", "DSF680", "DSF683"]


def test_a_secret_s_line_is_not_shown(cli: Cli, tmp_path: Path):
    env = tmp_path / ".deepspeed_env"
    env.write_text("WANDB_API_KEY=abc123\n", "utf-8")
    shown = cli("validate", env)
    assert shown.code == 0
    assert "WANDB_API_KEY=..." in shown.err
    assert "abc123" not in shown.err + shown.out


def test_the_version_is_named_and_the_batch_is_judged(cli: Cli):
    path = FOREIGN / "megatron_pipeline.json"
    assert cli("validate", path).out == f"{path}: ok (deepspeed 0.19.8)\n"
    refused = cli("validate", path, "--data-parallel", "4")
    assert refused.code == 1
    assert "512 is not micro 2 x accumulation 32 x DP 4 = 256" in refused.err


def test_a_kind_can_be_named(cli: Cli, tmp_path: Path):
    path = tmp_path / "config.txt"
    path.write_text('{"train_batch_size": "auto"}', "utf-8")
    assert cli("validate", "--as", "deepspeed", path).code == 1
    assert cli("validate", "--as", "hf-trainer", path).code == 0
    assert cli("validate", "--as", "hostfile", path).code == 1


def test_the_installed_library_can_be_asked(cli: Cli, tmp_path: Path):
    pytest.importorskip("deepspeed")
    path = tmp_path / "ds.json"
    path.write_text('{"train_batch_size": 8, "communication_data_type": "fp64"}', "utf-8")
    assert cli("validate", path).code == 0
    shown = cli("validate", "--probe", path)
    assert shown.code == 1
    assert "error[DSF617]" in shown.err
    assert "Invalid communication_data_type" in shown.err
    assert shown.out == f"{path}: refused (deepspeed 0.19.8, installed)\n"


def test_fix_is_for_recipes(cli: Cli):
    shown = cli("validate", "--fix", FOREIGN / "bloom_like.json")
    assert shown.code == 2
    assert "DSF600" in shown.err


def test_init_writes_a_recipe_and_lists_what_is_left(cli: Cli, tmp_path: Path):
    out = tmp_path / "made.yaml"
    shown = cli("init", "--from-deepspeed", FOREIGN / "megatron_pipeline.json", *GIVEN, "-o", out)
    assert shown.code == 0
    assert shown.out == ""
    assert "not carried: steps_per_print: 10" in shown.err
    text = out.read_text("utf-8")
    assert text.startswith(
        "# yaml-language-server: $schema=recipe.schema.json\n# Made from megatron_pipeline.json."
    )
    assert "#   steps_per_print: 10 - " in text
    assert cli("validate", out).code == 0
    assert cli("plan", out, "--json").json["batch"]["accumulation_steps"] == 32


def test_init_of_accelerate_takes_gpus_from_the_file(cli: Cli):
    given = ("--model", "gpt2", "--gpu", "a100-sxm-80gb", "--seq-len", "1024", "batch.global=64")
    shown = cli("init", "--from-accelerate", FOREIGN / "accelerate_deepspeed.yaml", *given)
    assert shown.code == 0
    assert "  gpus_per_node: 8\n" in shown.out


@pytest.mark.parametrize(
    "words",
    [
        ("batch.global=8",),
        ("--from-deepspeed", "a.json", "--from-accelerate", "b.yaml"),
    ],
)
def test_options_that_do_not_go_together(cli: Cli, words: tuple[str, ...]):
    shown = cli("init", *words)
    assert shown.code == 2
    assert "DSF068" in shown.err


HOSTILE = {
    "binary.json": b"\x00\xff\xfe" * 1000,
    "huge.json": b"{" + b" " * (5 << 20) + b"}",
    "deep.json": b'{"a":' * 20_000,
    "line.json": b'{"a": "' + b"x" * 1_000_000 + b'"}',
    "empty.json": b"",
    "list.json": b"[]",
    "names.json": ('{"' + "\x1b[31m" * 50 + '": 1, "train_batch_size": ' + "9" * 300 + "}").encode(),
    "sections.json": b'{"zero_optimization": [1], "optimizer": 3, "scheduler": "x", "fp16": null}',
    "params.json": b'{"optimizer": {"type": {}, "params": []}, "scheduler": {"type": 1, "params": 2}}',
    "hostfile": b"\xef\xbb\xbf" + b"a slots=" + b"9" * 10_000,
    "x_hostfile": b"node slots=4\r" * 10_000,
    ".deepspeed_env": b"=" * 100_000 + b"\n\n\n" + b"\r" * 100,
    "deep.yaml": b"distributed_type: {" + b"a: {" * 5000,
    "odd.yaml": b"distributed_type: [1]\nnum_processes: {}\ndeepspeed_config: 3\nmixed_precision: {a: 1}\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_without_a_traceback(cli: Cli, tmp_path: Path, name: str):
    path = tmp_path / name
    path.write_bytes(HOSTILE[name])
    shown = cli("validate", path)
    assert shown.code in (1, 2)
    assert "DSF000" not in shown.err
    assert "\x1b" not in shown.err
    assert len(shown.err) < 20_000
    kind = "--from-accelerate" if path.suffix == ".yaml" else "--from-deepspeed"
    made = cli("init", kind, path, *GIVEN)
    assert made.code in (1, 2)
    assert "DSF000" not in made.err
    assert made.out == ""


def test_folders_and_missing_files(cli: Cli, tmp_path: Path):
    (tmp_path / "folder.json").mkdir()
    assert cli("validate", tmp_path / "folder.json").code == 2
    shown = cli("validate", tmp_path / "nothing.json")
    assert shown.code == 2
    assert "DSF601" in shown.err


CHECKOUT = """\
version: 1
model: {arch: gpt, layers: 2, hidden: 64, heads: 4, vocab: 512}
cluster: {nodes: 1, gpus_per_node: 1, gpu: a100-sxm-80gb}
batch: {global: 8, micro: 1, seq_len: 64}
train: {steps: 3, precision: bf16}
data: {train: a}
trainer: external
external: {flavour: megatron-lm, path: src}
"""


def test_validate_looks_at_the_checkout_that_is_there(cli: Cli, tmp_path: Path):
    recipe = write(tmp_path, CHECKOUT)
    assert cli("validate", recipe).code == 0  # the folder is elsewhere
    for name in ("pretrain_gpt.py", "megatron/training/arguments.py", "megatron/core/package_info.py"):
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).touch()
    found = cli("validate", recipe)
    assert found.code == 0
    assert "warning[DSF216]: the checkout says nothing of its revision" in found.err
    assert f"{recipe}:8:34" in found.err
    options = "\n".join(f'add("--filler-{n}")' for n in range(60))
    (tmp_path / "src/megatron/training/arguments.py").write_text(options, "utf-8")
    refused = cli("validate", recipe)
    assert refused.code == 1
    assert "error[DSF218]: the checkout declares no option `--use-distributed-optimizer`" in refused.err
    folder = cli("validate", tmp_path / "src", "--json")
    assert folder.code == 0
    (row,) = folder.json["foreign"]
    assert (row["kind"], row["engine"]) == ("checkout", "megatron-lm of unknown revision")
    assert {one["code"] for one in row["findings"]} == {"DSF216", "DSF218"}
    changed = cli("validate", recipe, "external.flavour=gpt-neox", "data.tokenizer=t.json")
    assert changed.code == 1
    assert "it looks like one of megatron-lm: set external.flavour" in changed.err


ODD = [True, 0, -1, 1.5, "8", [], {"a": 1}]
PLACES = {
    "accelerate_fsdp.yaml": ("num_machines", "num_processes", "mixed_precision", "fsdp_config"),
    "fp32_zero2.json": ("scheduler", "optimizer", "gradient_accumulation_steps", "zero_optimization"),
}


@pytest.mark.parametrize("name", PLACES)
def test_values_of_every_type_end_in_findings(cli: Cli, tmp_path: Path, name: str):
    data = YAML(typ="safe").load((FOREIGN / name).read_text("utf-8"))
    path = tmp_path / name
    kind = "--from-accelerate" if path.suffix == ".yaml" else "--from-deepspeed"
    for key in PLACES[name]:
        for value in (*ODD, {"type": []}):
            path.write_text(json.dumps({**data, key: value}), "utf-8")
            for words in (("validate", path), ("init", kind, path, *GIVEN)):
                shown = cli(*words)
                assert shown.code in (0, 1, 2), (key, value, shown.err)
                assert "DSF000" not in shown.err


def test_what_is_long_is_shown_short(cli: Cli, tmp_path: Path):
    path = tmp_path / "long.json"
    path.write_text('{"train_batch_size": 8, "' + "x" * 100_000 + '": 1}', "utf-8")
    assert len(cli("validate", path).err) < 20_000
    assert len(cli("init", "--from-deepspeed", path, *GIVEN).err) < 20_000


def test_a_version_can_be_named(cli: Cli, tmp_path: Path):
    path = tmp_path / "ds.json"
    path.write_text(
        '{"train_batch_size": 8, "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}}', "utf-8"
    )
    assert cli("validate", path).code == 0
    shown = cli("validate", path, "--deepspeed-version", "0.9.5")
    assert shown.code == 1
    assert shown.out == f"{path}: refused (deepspeed 0.9.5)\n"
    assert "needs DeepSpeed > 0.9.5, 0.10.0 has it" in shown.err
    assert cli("validate", path, "--deepspeed-version", "0.10.0").code == 0
    assert cli("validate", path, "--deepspeed-version", "newest").code == 2
    assert cli("validate", path, "--deepspeed-version", "0.9.5", "--probe").code == 2


def test_a_script_with_many_unknown_options_is_judged_in_no_time(cli: Cli, tmp_path: Path):
    path = tmp_path / "run.sh"
    path.write_text("torchrun t.py " + " ".join(f"--option-{n} 1" for n in range(1000)) + "\n", "utf-8")
    shown = cli("validate", path)
    assert shown.code == 1
    assert "further findings are not shown" in shown.err
