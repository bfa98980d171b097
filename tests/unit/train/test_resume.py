import json

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.records.checkpoint import MANIFEST_NAME
from dsforge.records.checkpoint_lock import LOCK_NAME, check_free
from dsforge.train import resume, run
from tests.support import recipes
from tests.support.checkpoints import context_of, facts, write_whole


def find(context):
    return resume.find(context, facts(context.plan))


def refusal(context):
    with pytest.raises(DsforgeError) as caught:
        find(context)
    return caught.value


def test_a_run_that_starts_behind_a_checkpoint_of_its_folder_is_refused(tmp_path, make_plan):
    root = tmp_path / "kept"
    plan = make_plan(checkpoint__resume="never")
    assert find(context_of(plan, root)) is None
    write_whole(root, plan, 2)
    write_whole(root, plan, 4)
    error = refusal(context_of(plan, root))
    assert error.code == "DSF335"
    assert "step 4, and this run starts after step 0" in error.message
    back = make_plan(checkpoint__resume="kept/step-00000002")
    assert "step 4, and this run starts after step 2" in refusal(context_of(back, root)).message
    folder, found = find(context_of(make_plan(checkpoint__resume="auto"), root))
    assert (folder.name, found.step) == ("step-00000004", 4)


def test_auto_never_passes_over_a_checkpoint_that_is_not_whole(tmp_path, make_plan):
    plan = make_plan(checkpoint__resume="auto")
    root = tmp_path / "kept"
    write_whole(root, plan, 2)
    newest = write_whole(root, plan, 4)
    note = newest / MANIFEST_NAME
    whole = note.read_text()
    note.write_text(json.dumps({**json.loads(whole), "schema_version": 1}))
    error = refusal(context_of(plan, root))
    assert (error.code, error.place.file) == ("DSF334", str(note))
    assert "step-00000004 is not whole" in error.message
    assert "schema version 1" in error.message
    note.write_text(whole)
    (newest / "state" / "weights.pt").unlink()
    error = refusal(context_of(plan, root))
    assert "weights.pt is missing" in error.message
    assert "move step-00000004 away" in error.hint


def test_a_named_checkpoint_that_is_not_there_or_not_whole_is_refused(tmp_path, make_plan):
    plan = make_plan(checkpoint__resume="old")
    context = context_of(plan, tmp_path / "new")
    assert "no checkpoint here" in refusal(context).message
    folder = write_whole(tmp_path / "old", plan, 6)
    assert find(context)[0] == folder
    (folder / MANIFEST_NAME).unlink()
    assert f"{MANIFEST_NAME} is missing" in refusal(context).message
    named = context_of(make_plan(checkpoint__resume="old/step-00000006"), tmp_path / "new")
    assert f"{MANIFEST_NAME} is missing" in refusal(named).message


@pytest.mark.parametrize("choice", ["never", "old", "auto"])
def test_a_later_attempt_goes_on_from_what_the_run_saved_itself(tmp_path, make_plan, choice):
    plan = make_plan(checkpoint__resume=choice)
    write_whole(tmp_path / "old", plan, 2, run_id="another")
    root = tmp_path / "kept"
    first = find(context_of(plan, root))
    assert (first and first[1].step) == (2 if choice == "old" else None)
    assert find(context_of(plan, root, attempt=2)) == first  # nothing saved yet: as the first
    write_whole(root, plan, 4)
    assert find(context_of(plan, root, attempt=2))[1].step == 4


@pytest.mark.parametrize(("run_id", "attempt"), [("run-2", 2), ("run-1", 1), ("", 2)])
def test_what_another_run_saved_is_not_its_own(tmp_path, make_plan, run_id, attempt):
    plan = make_plan(checkpoint__resume="never")
    root = tmp_path / "kept"
    write_whole(root, plan, 4, run_id="" if not run_id else "run-1")
    assert refusal(context_of(plan, root, run_id=run_id, attempt=attempt)).code == "DSF335"


def test_a_later_attempt_does_not_pass_over_a_broken_one_either(tmp_path, make_plan):
    plan = make_plan(checkpoint__resume="never")
    root = tmp_path / "kept"
    write_whole(root, plan, 2)
    (write_whole(root, plan, 4) / MANIFEST_NAME).unlink()
    assert refusal(context_of(plan, root, attempt=2)).code == "DSF334"


def test_a_checkpoint_folder_serves_one_run_at_a_time(tmp_path):
    root = tmp_path / "kept"
    with resume.locked(root):
        with pytest.raises(DsforgeError, match="another run") as caught, resume.locked(root):
            pytest.fail("locked twice")
        assert caught.value.code == "DSF336"
        with pytest.raises(DsforgeError, match="another run") as caught:
            check_free(root)
        assert (caught.value.code, caught.value.exit_code) == ("DSF336", 4)
    check_free(root)
    check_free(tmp_path / "none")
    with resume.locked(root):
        pass


def test_who_holds_the_folder_clears_it(tmp_path):
    left = tmp_path / "step-00000004.tmp-run-0-attempt-1"
    left.mkdir()
    with resume.locked(tmp_path):
        assert not left.exists()
    left.mkdir()
    with resume.locked(tmp_path), pytest.raises(DsforgeError), resume.locked(tmp_path):
        pass
    assert not left.exists()


@pytest.mark.parametrize("obstacle", ["file", "below a file", "lock"])
def test_a_folder_that_cannot_be_used_is_named(tmp_path, obstacle):
    folder = tmp_path / "kept"
    if obstacle == "lock":
        (folder / LOCK_NAME).mkdir(parents=True)
    else:
        folder.write_text("")
    if obstacle == "below a file":
        folder = folder / "below"
    with pytest.raises(DsforgeError) as caught, resume.locked(folder):
        pytest.fail("locked")
    assert (caught.value.code, caught.value.exit_code) == ("DSF339", 3)
    assert caught.value.place.file == str(folder)


def test_a_folder_that_cannot_be_listed_is_no_empty_folder(tmp_path, make_plan):
    (tmp_path / "kept").write_text("")
    assert refusal(context_of(make_plan(), tmp_path / "kept")).code == "DSF339"


@pytest.mark.parametrize(
    ("trainer", "saved", "told"),
    [
        ("fsdp", {"dp": 4, "zero": 3}, None),
        ("fsdp", {"dp": 1, "zero": 3}, "states are dealt anew, from 1 replica to 4"),
        (
            "fsdp",
            {"dp": 2, "zero": 1},
            "states are dealt anew, from 2 replicas to 4; saved under ZeRO-1, going on under ZeRO-3",
        ),
        ("ddp", {"dp": 8, "zero": 0}, "from 8 replicas to 4"),
    ],
)
def test_who_goes_on_with_other_replicas_says_so(trainer, saved, told):
    one = {"cluster": {"gpus_per_node": 4}, "parallel": {"tp": 1, "pp": 1, "dp": 4}, "trainer": trainer}
    plan = recipes.plan_of(one, {"parallel": {"zero": 3 if trainer == "fsdp" else 0}})
    said = "resumed from the checkpoint of step 20"
    assert run.resumed_from(20, saved, plan) == (said if told is None else f"{said}; {told}")
