"""External programs under real launchers: what arrives on each rank, what is recorded, kill and restart."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dsforge.catalog.engines.flavours import flavour_of
from dsforge.external.options import option_table
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import read_state
from dsforge.records.streams import EvalLine, Event, MetricsLine, parse_line, read_lines
from tests.support.recipes import ROOT

pytestmark = pytest.mark.e2e

SUPPORT = ROOT / "tests" / "external_support"
HOSTILE = 'it\'s a "run"; $HOME `id` {"a": [1, 2]} * ä'
DATA = "da ta/it's $HOME; x"
MARKS = ("megatron/arguments.py", "megatron/training.py", "megatron/training/arguments.py")

MEGATRON = """\
version: 1
name: stand-in
model: {arch: gpt, layers: 2, hidden: 32, heads: 2, vocab: 300}
cluster: {nodes: 1, gpus_per_node: 2, gpu: cpu}
parallel: {dp: 2, zero: 1}
batch: {global: 8, micro: 1, seq_len: 16}
train: {steps: 3, precision: fp32}
optimizer: {lr: 3.0e-4, betas: [0.8, 0.9]}
data: {train: "DATA"}
trainer: external
external: {flavour: FLAVOUR, path: checkout}
"""

NEOX = """\
version: 1
name: stand-in
model: {arch: llama, layers: 2, hidden: 32, heads: 2, kv_heads: 1, ffn_hidden: 48, vocab: 300}
cluster: {nodes: 1, gpus_per_node: 2, gpu: cpu}
parallel: {dp: 2, zero: 1}
batch: {global: 8, micro: 2, seq_len: 16}
train: {steps: 4, precision: fp32}
optimizer: {lr: 3.0e-4, betas: [0.8, 0.9]}
data: {train: "DATA", tokenizer: "DATA.json"}
trainer: external
external: {flavour: gpt-neox, path: "it's a $checkout"}
"""

CNN = """\
version: 1
name: cnn
model: {arch: gpt, layers: 1, hidden: 8, heads: 1, vocab: 16}
cluster: {nodes: 1, gpus_per_node: 2, gpu: cpu}
batch: {global: 32, micro: 16, seq_len: 1}
train: {steps: 40}
optimizer: {lr: 0.2}
launch: {restarts: 1}
trainer: external
external:
  flavour: script
  path: code
  entry: cnn.py
  arguments:
    [--steps, "{train.steps}", --batch, "{batch.micro}", --lr, "{optimizer.lr}",
     --save, "{checkpoints}", --die-at, 15]
"""


def environ(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


def dsforge(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dsforge.cli", *words]
    return subprocess.run(
        command, check=False, cwd=folder, env=environ(**more), capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    for mark in (*MARKS, "megatron/core/package_info.py"):
        (folder / mark).parent.mkdir(parents=True, exist_ok=True)
        (folder / mark).touch()
    shutil.copy(SUPPORT / "pretrain_gpt.py", folder)
    for suffix in (".bin", ".idx"):
        path = tmp_path / f"{DATA}{suffix}"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return folder


def planned_and_seen(folder: Path, flavour: str, *, mds: bool) -> None:
    for rank in (0, 1):
        seen = json.loads((folder / f"seen-{rank}.json").read_text())
        assert (seen["world"]["RANK"], seen["world"]["WORLD_SIZE"]) == (str(rank), "2")
        assert seen["world"]["LOCAL_RANK"] == str(rank)
        assert (seen["world"]["LOCAL_SIZE"], seen["world"]["LOCAL_WORLD_SIZE"]) == ("2", "2")
        assert not seen["flash"]
        given = seen["arguments"]
        dest = {name: option.dest for name, option in option_table(flavour).items()}
        assert given[dest["--data-path"]] == [str(folder.parent / DATA)]
        assert given["wandb_exp_name"] == HOSTILE
        assert (given["micro_batch_size"], given["global_batch_size"], given["train_iters"]) == (1, 8, 3)
        assert (given["adam_beta1"], given["adam_beta2"], given["hidden_dropout"]) == (0.8, 0.9, 0.0)
        if mds:
            assert seen["absent"] == "deepspeed.compression.compress.init_compression"
            assert seen["minutes"] == "10"
            assert json.loads(Path(given["deepspeed_config"]).read_text())["zero_optimization"]["stage"] == 1
            assert given["zero_stage"] == 1
            assert given["no_pipeline_parallel"]


def test_what_was_planned_arrives_through_the_deepspeed_launcher(checkout: Path):
    root, flavour = checkout.parent, "megatron-deepspeed"
    (root / "recipe.yaml").write_text(MEGATRON.replace("FLAVOUR", flavour).replace("DATA", DATA))
    done = dsforge(
        root, "launch", "recipe.yaml", "--json", "--", "--wandb-exp-name", HOSTILE, OPTIONS_OF=flavour
    )
    assert done.returncode == 0, done.stdout + done.stderr
    planned_and_seen(checkout, flavour, mds=True)
    attempt = RunDir(Path(json.loads(done.stdout)["run"])).attempt(1)
    lines = [parse_line(line) for _, line in read_lines(attempt.metrics)]
    steps = [line for line in lines if isinstance(line, MetricsLine)]
    assert [(line.step, line.loss, line.grad_norm) for line in steps] == [
        (1, 8.0, 1.5),
        (2, 4.0, 1.5),
        (3, 2.666667, 1.5),
    ]
    assert {(line.learning_rate, line.step_seconds, line.tokens_per_second) for line in steps} == {
        (3e-4, 0.25, 512.0)
    }
    judged = [line for line in lines if isinstance(line, EvalLine)]
    assert [(line.step, line.loss, line.samples, line.seconds) for line in judged] == [(3, 2.5, None, None)]
    assert {line.memory_bytes for line in steps} == {None}
    events = [parse_line(line) for _, line in read_lines(attempt.events)]
    met = [event for event in events if isinstance(event, Event) and event.name == "joined"]
    assert [event.source for event in met].count("trainer") == 1
    stand_ins = [
        event.data["module"] for event in events if isinstance(event, Event) and event.name == "stand_in"
    ]
    assert "deepspeed.compression.compress" in stand_ins
    assert "warning[DSF216]" in done.stderr


@pytest.mark.parametrize(
    ("steps", "code", "kind", "message"),
    [
        ("0", 4, "before_first_step", "every rank ended with code 0, but the program made no step"),
        ("1", 1, "rank_failed", "every rank ended with code 0 after step 1 of 3, and the program saved no"),
    ],
)
def test_a_program_that_ends_well_before_its_end_has_failed(
    checkout: Path, steps: str, code: int, kind: str, message: str
):
    """As Megatron does where it cannot write its index of the data, or load what it is to go on from."""
    recipe = checkout.parent / "recipe.yaml"
    recipe.write_text(MEGATRON.replace("DATA", DATA).replace("FLAVOUR", "megatron-lm"))
    done = dsforge(checkout.parent, "launch", "recipe.yaml", "--json", OPTIONS_OF="megatron-lm", STEPS=steps)
    assert done.returncode == code, done.stderr
    told = json.loads(done.stdout)["exit"]
    assert (told["kind"], told["code"]) == (kind, code)
    assert told["message"].startswith(message)


def test_what_was_planned_arrives_through_torchrun(checkout: Path):
    root, flavour = checkout.parent, "megatron-lm"
    (root / "recipe.yaml").write_text(MEGATRON.replace("FLAVOUR", flavour).replace("DATA", DATA))
    rendered = dsforge(root, "render", "recipe.yaml", "--", "--wandb-exp-name", HOSTILE)
    assert rendered.returncode == 0, rendered.stderr
    ranks = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29611"]
    done = subprocess.run(
        [*ranks, "--module", "dsforge.rank.main", "--program"],
        check=False,
        cwd=root,
        env=environ(
            OPTIONS_OF=flavour,
            DSFORGE_PLAN=str(root / "bundle" / "plan.json"),
            DSFORGE_ROOT=str(root),
            DSFORGE_ATTEMPT_DIR=str(root / "attempt-1"),
            DSFORGE_CHECKPOINT_DIR=str(root / "checkpoints"),
        ),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    planned_and_seen(checkout, flavour, mds=False)
    seen = json.loads((checkout / "seen-1.json").read_text())["arguments"]
    assert (seen["save"], seen["load"]) == (str(root / "checkpoints"), str(root / "checkpoints"))
    assert not (root / "bundle" / "ds_config.json").exists()


def test_a_configuration_arrives_as_gpt_neox_takes_it(tmp_path: Path):
    folder = tmp_path / "it's a $checkout"
    for mark in flavour_of("gpt-neox").marks:
        (folder / mark).parent.mkdir(parents=True, exist_ok=True)
        (folder / mark).touch()
    shutil.copy(SUPPORT / "neox_train.py", folder / "train.py")
    for suffix, text in (
        (".bin", ""),
        (".idx", ""),
        (".json", '{"model": {"type": "BPE", "vocab": {"a": 0}}}'),
    ):
        (tmp_path / f"{DATA}{suffix}").parent.mkdir(exist_ok=True)
        (tmp_path / f"{DATA}{suffix}").write_text(text)
    (tmp_path / "recipe.yaml").write_text(NEOX.replace("DATA", DATA))
    words = [
        f"wandb_group={HOSTILE}",
        'attention_config=[[["global"], 2]]',
        "zero_optimization.overlap_comm=true",
    ]
    done = dsforge(tmp_path, "launch", "recipe.yaml", "--json", "--", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    run = RunDir(Path(json.loads(done.stdout)["run"]))
    for rank in (0, 1):
        seen = json.loads((folder / f"seen-{rank}.json").read_text())
        assert seen["world"][:3] == [rank, rank, 2]
        assert (seen["rest"], seen["autotuning"], seen["data_parallel"]) == ([], None, 2)
        assert seen["absent"] == "pkg_resources"
        given = seen["configuration"]
        assert given["wandb_group"] == HOSTILE
        assert given["attention_config"] == [[["global"], 2]]
        assert given["data_path"] == str(tmp_path / DATA)
        assert given["vocab_file"] == str(tmp_path / f"{DATA}.json")
        assert (given["num_kv_heads"], given["intermediate_size"], given["rotary_emb_base"]) == (
            1,
            144,
            10_000,
        )
        assert (given["distributed_backend"], given["use_wandb"]) == ("gloo", False)
        assert seen["deepspeed"]["zero_optimization"] == {"stage": 1, "overlap_comm": True}
        assert seen["deepspeed"]["gradient_clipping"] == 1.0
    attempt = run.attempt(1)
    lines = [parse_line(line) for _, line in read_lines(attempt.metrics)]
    steps = [line for line in lines if isinstance(line, MetricsLine)]
    # The second step was skipped, the third had no finite loss.
    assert [(line.step, line.loss, line.learning_rate) for line in steps] == [(1, 8.0, 3e-4), (4, 2.0, 3e-4)]
    assert {(line.step_seconds, line.tokens_per_second) for line in steps} == {(0.25, 512.0)}
    assert [(line.step, line.loss) for line in lines if isinstance(line, EvalLine)] == [(4, 2.5)]
    events = [parse_line(line) for _, line in read_lines(attempt.events)]
    told = {event.name: event for event in events if isinstance(event, Event) and event.source == "trainer"}
    assert (told["skipped"].data["step"], told["not_finite"].data["step"]) == (2, 3)
    served = [
        event.data["module"] for event in events if isinstance(event, Event) and event.name == "stand_in"
    ]
    assert "pkg_resources" in served
    assert any("torch.cuda.LongTensor" in names for names in served)
    assert "have met" in told["joined"].message
    log = "\n".join(path.read_text() for path in attempt.path.rglob("*.log"))
    assert "> setting random seeds to 3 ..." in log


def test_a_script_of_ones_own_is_trained_killed_and_goes_on(tmp_path: Path):
    (tmp_path / "code").mkdir()
    shutil.copy(SUPPORT / "cnn.py", tmp_path / "code")
    (tmp_path / "recipe.yaml").write_text(CNN)
    done = dsforge(tmp_path, "launch", "recipe.yaml", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    run = RunDir(Path(json.loads(done.stdout)["run"]))
    state = read_state(run.state)
    assert (state.attempt, state.trainer) == (2, "external")
    assert "SIGKILL" in state.restarts[0].why
    first, second = (
        [MetricsLine.from_dict(line) for _, line in read_lines(run.attempt(number).metrics)]
        for number in (1, 2)
    )
    assert [line.step for line in first] == list(range(1, 16))
    assert [line.step for line in second] == list(range(second[0].step, 41))
    assert second[0].step in (15, 16)
    assert first[0].loss > 1.2
    assert second[-1].loss < first[0].loss - 0.3
    assert {line.learning_rate for line in first} == {0.2}
    shown = dsforge(tmp_path, "runs", "show", json.loads(done.stdout)["run_id"])
    assert "succeeded" in shown.stdout
