"""A checkpoint of an external program is not gone on from with another number of rows in its embedding."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.launch.external_resume import check_resume, note_layout
from dsforge.launch.types import LaunchRequest
from dsforge.plan.resolve import make_plan
from dsforge.recipe.load import load_recipe
from dsforge.records.saved import FILE_NAME, read_saved
from tests.launch_support.bundles import make_bundle

RECIPE = """\
version: 1
model: {arch: gpt, layers: 2, hidden: 64, heads: 8, vocab: 50257}
cluster: {nodes: 1, gpus_per_node: 8, gpu: a100-sxm-80gb}
parallel: {tp: TP}
batch: {global: 8, micro: 1, seq_len: 64}
train: {steps: 3, precision: bf16}
data: {train: data/a, tokenizer: data/a.json}
checkpoint: {dir: kept}
trainer: external
external: {flavour: FLAVOUR, path: x, arguments: [WORDS]}
"""
MARKS = ("latest_checkpointed_iteration.txt",)


def request(
    root: Path, tp: int, flavour: str = "megatron-lm", words: str = "", **section: str
) -> LaunchRequest:
    path = root / "recipe.yaml"
    path.write_text(
        RECIPE.replace("TP", str(tp)).replace("FLAVOUR", flavour).replace("WORDS", words), "utf-8"
    )
    plan = make_plan(load_recipe(path, [f"checkpoint.{key}={value}" for key, value in section.items()], None))
    return LaunchRequest(plan, make_bundle(plan), root / "runs", root, "recipe.yaml", "", (), {})


def refusal(asked: LaunchRequest) -> DsforgeError:
    with pytest.raises(DsforgeError) as caught:
        check_resume(asked, MARKS)
    return caught.value


def test_another_tp_with_other_rows_is_refused_with_the_divisor_that_keeps_them(tmp_path):
    note_layout(request(tmp_path, 1))
    check_resume(request(tmp_path, 8), MARKS)  # nothing is saved yet
    (tmp_path / "kept" / MARKS[0]).touch()
    check_resume(request(tmp_path, 1), MARKS)
    fault = refusal(request(tmp_path, 8))
    assert (fault.code, fault.exit_code) == ("DSF213", 1)
    assert (
        "under TP 1 its vocabulary was padded to 50304 rows, under TP 8 the plan pads it to 51200"
        in fault.message
    )
    assert fault.hint is not None
    assert fault.hint.startswith("pass on `--make-vocab-size-divisible-by 16`, which keeps 50304 rows")
    check_resume(request(tmp_path, 8, words='--make-vocab-size-divisible-by, "16"'), MARKS)
    check_resume(request(tmp_path, 8, resume="never"), MARKS)
    assert "51200" in refusal(request(tmp_path, 8, resume="kept", dir="other")).message


def test_a_program_that_reads_a_configuration_goes_on_under_the_same_tp(tmp_path):
    note_layout(request(tmp_path, 1, "gpt-neox"))
    (tmp_path / "kept" / MARKS[0]).touch()
    assert (refusal(request(tmp_path, 8, "gpt-neox")).hint or "").startswith("go on under TP 1")


def test_what_is_noted_is_what_the_arguments_come_to(tmp_path):
    note_layout(request(tmp_path, 2, words='--make-vocab-size-divisible-by, "64"'))
    saved = read_saved(tmp_path / "kept")
    assert saved is not None
    assert (saved.tp, saved.divisor, saved.vocab, saved.padded_vocab) == (2, 64, 50257, 50304)
    for damaged in (
        "",
        "[]",
        '{"tp": "x"}',
        '{"flavour": "a", "tp": 0, "vocab": 1, "divisor": 1, "padded_vocab": 1}',
    ):
        (tmp_path / "kept" / FILE_NAME).write_text(damaged)
        assert read_saved(tmp_path / "kept") is None
