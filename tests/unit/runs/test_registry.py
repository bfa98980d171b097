from __future__ import annotations

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.records.run_state import RunExit, read_state
from dsforge.runs.registry import find_run, list_runs, runs_root
from tests.launch_support.run_folders import NOBODY, make_run


def test_the_root_is_the_users_or_runs_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert runs_root({}) == tmp_path / "runs"
    assert runs_root({"DSFORGE_RUNS": "/data/runs"}).as_posix() == "/data/runs"


def test_runs_are_listed_newest_first_and_other_folders_are_not(tmp_path):
    make_run(tmp_path, "a", started_time=1.0, state="succeeded", exit=RunExit(0, "ok", "well"))
    make_run(tmp_path, "b", started_time=2.0)
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").touch()
    listed = list_runs(tmp_path)
    assert [(run.run_id, run.state) for run in listed] == [("b", "running"), ("a", "succeeded")]
    assert listed[1].exit == RunExit(0, "ok", "well")
    assert list_runs(tmp_path / "none") == ()


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "running"),
        ({"supervisor": NOBODY}, "lost"),
        ({"boot_id": "an earlier boot"}, "lost"),
        ({"supervisor": NOBODY, "host": "elsewhere"}, "running"),
        ({"supervisor": NOBODY, "state": "failed"}, "failed"),
    ],
)
def test_an_active_run_without_its_supervisor_is_lost(tmp_path, changes, state):
    make_run(tmp_path, "a", **changes)
    assert list_runs(tmp_path)[0].state == state


def test_a_torn_state_is_unknown_and_does_not_hide_the_others(tmp_path):
    make_run(tmp_path, "a").state.write_text('{"run_id": "a"')
    make_run(tmp_path, "b")
    assert {run.run_id: run.state for run in list_runs(tmp_path)} == {"a": "unknown", "b": "running"}


def test_a_state_survives_writing_and_reading(tmp_path):
    run_dir = make_run(tmp_path, "a", launcher=NOBODY, exit=RunExit(137, "rank_killed", "x", 1, 9, "h"))
    state = read_state(run_dir.state)
    assert state is not None
    assert state.launcher == NOBODY
    assert state.exit == RunExit(137, "rank_killed", "x", 1, 9, "h")


def test_a_run_is_found_by_the_beginning_of_its_id(tmp_path):
    for run_id in ("gpt-1", "gpt-10", "llama-1"):
        make_run(tmp_path, run_id)
    assert find_run(tmp_path, "ll").path.name == "llama-1"
    assert find_run(tmp_path, "gpt-1").path.name == "gpt-1"
    with pytest.raises(DsforgeError, match="beginning of 2 runs") as several:
        find_run(tmp_path, "gpt")
    assert several.value.code == "DSF221"
    with pytest.raises(DsforgeError) as none:
        find_run(tmp_path, "lama-1")
    assert (none.value.code, none.value.hint) == ("DSF220", "did you mean llama-1?")


@pytest.mark.parametrize("run_id", ["", ".", "..", "../a", "/"])
def test_an_id_never_leaves_the_root(tmp_path, run_id):
    make_run(tmp_path / "runs", "a")
    make_run(tmp_path, "a")
    with pytest.raises(DsforgeError):
        find_run(tmp_path / "runs", run_id)
