"""Checkpoints are looked at before ranks start; the manifests are made by hand."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.launch.checkpoints import check_checkpoints, difference_from_plan
from dsforge.launch.types import LaunchRequest
from dsforge.records import checkpoint
from dsforge.train.fits import model_facts
from dsforge.train.parameters import model_parameters
from tests.launch_support.bundles import make_bundle
from tests.launch_support.plans import make_plan

LAYOUT = {"tp": 1, "pp": 1, "dp": 2, "zero": 0, "bf16": 0}


def make_request(root: Path, **checkpoint_section) -> LaunchRequest:
    plan = make_plan()
    section = plan.checkpoint.model_copy(update={"dir": "ckpt", **checkpoint_section})
    plan = plan.model_copy(update={"checkpoint": section})
    return LaunchRequest(plan, make_bundle(plan), root / "runs", root, "tiny.yaml", "", (), {})


def write_manifest(folder: Path, step: int = 2, **changes) -> Path:
    plan = make_plan()
    specs = model_parameters(plan.model)
    values = {
        "step": step,
        "consumed_samples": step * plan.batch.global_size,
        "run_id": "",
        "trainer": "forge",
        "layout": LAYOUT,
        "plan_sha256": "",
        "data": {"seed": plan.train.seed, "seq_len": plan.batch.seq_len},
        "files": {"state.pt": {"size_bytes": 0, "blake2b": ""}},
        "model": model_facts(plan),
        "parameters": [
            asdict(
                checkpoint.ParameterEntry(spec.name, spec.shape, spec.partition_dim, spec.partition_stride)
            )
            for spec in specs
        ],
        "schema_version": checkpoint.SCHEMA_VERSION,
        **changes,
    }
    folder.mkdir(parents=True)
    (folder / "state.pt").touch()
    (folder / checkpoint.MANIFEST_NAME).write_text(json.dumps(values))
    return folder


def refusal(request: LaunchRequest) -> tuple[str, str]:
    with pytest.raises(DsforgeError) as caught:
        check_checkpoints(request)
    return caught.value.code, caught.value.message


def test_nothing_to_go_on_from_is_no_fault(tmp_path):
    check_checkpoints(make_request(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_rows_of_the_embedding_are_told_where_tp_is_another(tmp_path):
    layout = {**LAYOUT, "tp": 64}
    write_manifest(tmp_path / "ckpt" / checkpoint.step_folder_name(2), layout=layout)
    code, message = refusal(make_request(tmp_path))
    assert code == "DSF213"
    assert message.endswith("tp was 64, the plan says 1; the vocabulary was padded to 8192 rows, now to 128")


def test_the_newest_whole_checkpoint_is_held_against_the_plan(tmp_path):
    write_manifest(tmp_path / "ckpt" / checkpoint.step_folder_name(1), 1, layout={**LAYOUT, "tp": 9})
    write_manifest(tmp_path / "ckpt" / checkpoint.step_folder_name(2))
    check_checkpoints(make_request(tmp_path))
    write_manifest(tmp_path / "ckpt" / checkpoint.step_folder_name(3), 3, layout={**LAYOUT, "pp": 4})
    assert refusal(make_request(tmp_path)) == (
        "DSF213",
        "the checkpoint of step 3 does not fit the plan: parallel.pp was 4, the plan says 1",
    )
    check_checkpoints(make_request(tmp_path, resume="never"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trainer": "transformers"}, "trainer was transformers, the recipe says forge"),
        ({"layout": {**LAYOUT, "zero": 2}}, "zero was 2, the plan says 0"),
        ({"layout": {**LAYOUT, "bf16": 1}}, "train.precision was bf16, the recipe says fp32"),
        ({"data": {"seed": 7}}, "train.seed was 7, the recipe says 1"),
        ({"data": {"seq_len": 4}}, "batch.seq_len was 4, the recipe says 8"),
        ({"consumed_samples": 5}, "5 samples in 2 steps, batch.global is 2"),
        ({"model": {**model_facts(make_plan()), "heads": 4}}, "heads was 4, the plan says 2"),
        ({"parameters": []}, "was not there, the plan says"),
    ],
)
def test_what_differs_is_named(tmp_path, changes, words):
    manifest = checkpoint.read_manifest(write_manifest(tmp_path / "step-00000002", **changes))
    assert words in difference_from_plan(manifest, make_plan())


def test_replicas_that_shard_nothing_may_be_fewer(tmp_path):
    manifest = checkpoint.read_manifest(
        write_manifest(tmp_path / "step-00000002", layout={**LAYOUT, "dp": 4})
    )
    plan = make_plan()
    assert difference_from_plan(manifest, plan) is None
    sharded = plan.model_copy(update={"layout": plan.layout.model_copy(update={"zero": 1})})
    folder = write_manifest(tmp_path / "step-00000003", 3, layout={**LAYOUT, "dp": 4, "zero": 1})
    words = difference_from_plan(checkpoint.read_manifest(folder), sharded)
    assert words == "parallel.dp was 4, the plan says 2"


def test_a_named_checkpoint_must_be_there_and_whole(tmp_path):
    assert refusal(make_request(tmp_path, resume="nowhere"))[0] == "DSF212"
    folder = write_manifest(tmp_path / "old" / "step-00000002")
    check_checkpoints(make_request(tmp_path, resume="old"))
    check_checkpoints(make_request(tmp_path, resume="old/step-00000002"))
    (folder / checkpoint.MANIFEST_NAME).write_text("{")
    assert refusal(make_request(tmp_path, resume="old/step-00000002"))[0] == "DSF212"
    assert refusal(make_request(tmp_path, resume="old"))[0] == "DSF212"


def test_a_folder_that_cannot_be_made_is_found_before_ranks_start(tmp_path):
    (tmp_path / "file").touch()
    code, message = refusal(make_request(tmp_path, dir="file/ckpt"))
    assert (code, message) == ("DSF210", f"checkpoints cannot be saved: {tmp_path / 'file'} is not a folder")
