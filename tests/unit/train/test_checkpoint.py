import pickle
import pickletools
import traceback

import pytest
import torch

from dsforge.base.errors import DsforgeError
from dsforge.records.checkpoint import step_folder_name, whole_checkpoints
from dsforge.train import checkpoint
from dsforge.train.engine import make_loadable_without_code
from tests.support.checkpoints import write_whole


def test_a_save_that_died_is_neither_counted_nor_kept(tmp_path, make_plan):
    plan = make_plan()
    write_whole(tmp_path, plan, 2)
    dead = write_whole(tmp_path, plan, 4)
    dead.rename(tmp_path / "step-00000004.tmp-run-1-attempt-1")
    (tmp_path / "step-00000006.tmp-run-1-attempt-2").mkdir()
    (tmp_path / "step-00000008.tmp-odd").write_text("")
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


def test_a_folder_that_stands_there_is_never_replaced(tmp_path, make_plan):
    checkpoint.refuse_to_replace(tmp_path / step_folder_name(4))
    for name in ("step-00000004", "step-00000006"):
        folder = tmp_path / name
        folder.mkdir() if name.endswith("4") else folder.symlink_to("nowhere")
        with pytest.raises(DsforgeError, match=name) as caught:
            checkpoint.refuse_to_replace(folder)
        assert (caught.value.code, caught.value.exit_code) == ("DSF338", 3)


def test_the_engines_enum_is_pickled_without_a_call(tmp_path):
    from deepspeed.runtime.zero.config import ZeroStageEnum

    make_loadable_without_code()
    stored = pickle.dumps({"stage": ZeroStageEnum.weights}, protocol=2)
    names = {argument for _, argument, _ in pickletools.genops(stored) if isinstance(argument, str)}
    assert not any("getattr" in name for name in names)
    torch.save({"stage": ZeroStageEnum.weights}, tmp_path / "file.pt")
    with torch.serialization.safe_globals([ZeroStageEnum]):
        assert torch.load(tmp_path / "file.pt", weights_only=True) == {"stage": ZeroStageEnum.weights}


class _Call:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("content", ["empty", "text", "half", "code", "zip"])
def test_a_file_that_cannot_be_loaded_is_named_and_no_advice_to_run_it_is_shown(tmp_path, content):
    path, ran = tmp_path / "step-00000002" / "mp_rank_00_model_states.pt", tmp_path / "ran"
    path.parent.mkdir()
    torch.save({"code": _Call(str(ran))} if content == "code" else {"module": torch.ones(99)}, path)
    whole = path.read_bytes()
    others = {
        "empty": b"",
        "text": b"hello\n",
        "half": whole[: len(whole) // 2],
        "code": whole,
        "zip": b"PK\3\4",
    }
    path.write_bytes(others[content])
    with pytest.raises(DsforgeError) as caught:
        checkpoint.load_file(path.parent, str(path))
    shown = "".join(traceback.format_exception(caught.value))
    assert (caught.value.code, caught.value.place.file) == ("DSF334", str(path))
    assert "weights_only" not in shown.replace("weights_only=True)", "")
    assert "step-00000002 is not whole: mp_rank_00_model_states.pt" in caught.value.message
    assert not ran.exists()


def test_a_whole_file_is_loaded(tmp_path):
    torch.save({"module": torch.ones(3)}, tmp_path / "file.pt")
    assert checkpoint.load_file(tmp_path, str(tmp_path / "file.pt"))["module"].tolist() == [1, 1, 1]
