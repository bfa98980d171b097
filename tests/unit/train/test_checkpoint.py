import pickle
import pickletools
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from dsforge.base.errors import DsforgeError
from dsforge.records.checkpoint import (
    MANIFEST_NAME,
    CheckpointManifest,
    read_manifest,
    step_folder_name,
    whole_checkpoints,
)
from dsforge.train import checkpoint


def manifest(plan, step, files):
    return CheckpointManifest(
        step=step,
        consumed_samples=step * plan.batch.global_size,
        trainer="forge",
        layout=checkpoint.layout_facts(plan),
        data=checkpoint.data_facts(plan),
        plan_sha256="0" * 64,
        files=files,
        parameters=checkpoint.parameter_entries(plan),
    )


def write_whole(root, plan, step):
    folder = root / step_folder_name(step)
    (folder / "state").mkdir(parents=True)
    (folder / "state" / "weights.pt").write_bytes(b"w" * step)
    files = checkpoint.sizes_of(folder)
    (folder / MANIFEST_NAME).write_text(manifest(plan, step, files).to_json())
    return folder


def test_sizes_of_names_every_file_but_the_manifest(tmp_path, make_plan):
    folder = write_whole(tmp_path, make_plan(), 5)
    assert checkpoint.sizes_of(folder) == {"state/weights.pt": 5}


@pytest.mark.parametrize("harm", ["truncate", "remove", "manifest", "tear"])
def test_a_harmed_checkpoint_is_not_whole(tmp_path, make_plan, harm):
    folder = write_whole(tmp_path, make_plan(), 5)
    assert read_manifest(folder) is not None
    weights, note = folder / "state" / "weights.pt", folder / MANIFEST_NAME
    if harm == "truncate":
        weights.write_bytes(b"w")
    elif harm == "remove":
        weights.unlink()
    elif harm == "manifest":
        note.unlink()
    else:
        note.write_text(note.read_text()[:-20])
    assert read_manifest(folder) is None
    assert whole_checkpoints(tmp_path) == []


def test_a_save_that_died_is_neither_counted_nor_kept(tmp_path, make_plan):
    plan = make_plan()
    write_whole(tmp_path, plan, 2)
    dead = write_whole(tmp_path, plan, 4)
    dead.rename(tmp_path / "step-00000004.tmp-attempt-1")
    assert [step for step, _ in whole_checkpoints(tmp_path)] == [2]
    checkpoint.prune(tmp_path, keep=0)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000002"]


def test_prune_keeps_the_newest_whole_ones(tmp_path, make_plan):
    for step in (2, 4, 6, 10):
        write_whole(tmp_path, make_plan(), step)
    (tmp_path / step_folder_name(10) / "state" / "weights.pt").unlink()
    checkpoint.prune(tmp_path, keep=2)
    assert [step for step, _ in whole_checkpoints(tmp_path)] == [4, 6]
    assert (tmp_path / step_folder_name(10)).exists()  # not whole: neither counted nor removed


@pytest.mark.parametrize(
    ("keep", "left"), [(1, [6]), (2, [4, 6]), (3, [2, 4, 6]), (4, [2, 4, 6]), (0, [2, 4, 6])]
)
def test_prune_never_removes_more_than_it_must(tmp_path, make_plan, keep, left):
    for step in (2, 4, 6):
        write_whole(tmp_path, make_plan(), step)
    checkpoint.prune(tmp_path, keep=keep)
    assert [step for step, _ in whole_checkpoints(tmp_path)] == left


def test_the_engines_enum_is_pickled_without_a_call(tmp_path):
    from deepspeed.runtime.zero.config import ZeroStageEnum

    checkpoint.make_loadable_without_code()
    stored = pickle.dumps({"stage": ZeroStageEnum.weights}, protocol=2)
    names = {argument for _, argument, _ in pickletools.genops(stored) if isinstance(argument, str)}
    assert not any("getattr" in name for name in names)
    torch.save({"stage": ZeroStageEnum.weights}, tmp_path / "file.pt")
    with torch.serialization.safe_globals([ZeroStageEnum]):
        assert torch.load(tmp_path / "file.pt", weights_only=True) == {"stage": ZeroStageEnum.weights}


def test_an_equal_plan_fits(tmp_path, make_plan):
    plan = make_plan()
    checkpoint.check_fits(manifest(plan, 3, {}), plan, tmp_path)


@pytest.mark.parametrize(
    ("change", "code", "word"),
    [
        ({"layout__tp": 2}, "DSF331", "tp was 1, the plan says 2"),
        ({"layout__zero": 3}, "DSF331", "zero was 0, the plan says 3"),
        ({"train__precision": "bf16"}, "DSF331", "bf16 was 0, the plan says 1"),
        ({"batch__global_size": 8}, "DSF332", "12 samples in 3 steps"),
        ({"train__seed": 99}, "DSF332", "seed was 7, the plan says 99"),
        ({"batch__seq_len": 4}, "DSF332", "seq_len was"),
        ({"model__ffn_hidden": 32}, "DSF333", "linear_fc1"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, make_plan, change, code, word):
    with pytest.raises(DsforgeError, match=word) as caught:
        checkpoint.check_fits(manifest(make_plan(), 3, {}), make_plan(**change), tmp_path)
    assert caught.value.code == code


def test_a_checkpoint_of_other_stages_does_not_fit(tmp_path, make_plan):
    plan = make_plan()
    saved = manifest(plan, 3, {})
    layout = {**saved.layout, "layers_of_stage_0": 1, "layers_of_stage_1": 1}
    with pytest.raises(DsforgeError, match="layers_of_stage_0 was 1, the plan says 2"):
        checkpoint.check_fits(replace(saved, layout=layout), plan, tmp_path)


def context_of(plan, root):
    return SimpleNamespace(plan=plan, checkpoint_dir=root, root=root.parent, rank=0)


def test_a_run_that_starts_behind_a_checkpoint_of_its_folder_is_refused(tmp_path, make_plan):
    root = tmp_path / "kept"
    plan = make_plan(checkpoint__resume="never")
    assert checkpoint.find(context_of(plan, root)) is None
    write_whole(root, plan, 2)
    write_whole(root, plan, 4)
    with pytest.raises(DsforgeError, match="step 4, and this run starts after step 0") as caught:
        checkpoint.find(context_of(plan, root))
    assert caught.value.code == "DSF335"
    back = make_plan(checkpoint__resume="kept/step-00000002")
    with pytest.raises(DsforgeError, match="step 4, and this run starts after step 2"):
        checkpoint.find(context_of(back, root))
    folder, found = checkpoint.find(context_of(make_plan(checkpoint__resume="auto"), root))
    assert (folder.name, found.step) == ("step-00000004", 4)


def test_a_checkpoint_folder_serves_one_run_at_a_time(tmp_path, make_plan):
    context = context_of(make_plan(), tmp_path / "kept")
    with checkpoint.claimed(context):
        with pytest.raises(DsforgeError, match="another run") as caught, checkpoint.claimed(context):
            pytest.fail("claimed twice")
        assert caught.value.code == "DSF336"
    with checkpoint.claimed(context):
        pass
