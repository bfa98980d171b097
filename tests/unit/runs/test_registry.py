from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dsforge.base import lease
from dsforge.base.errors import DsforgeError
from dsforge.records.run_state import RunExit, read_state, write_state
from dsforge.runs.registry import find_run, list_runs, runs_root
from tests.launch_support.run_folders import NOBODY, make_run


def test_the_root_is_the_users_or_runs_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert runs_root({}) == tmp_path / "runs"
    assert runs_root({"DSFORGE_RUNS": "/data/runs"}).as_posix() == "/data/runs"


def test_runs_are_listed_newest_first_and_other_folders_are_not(tmp_path):
    make_run(tmp_path, "a", started_time=1.0, state="succeeded", exit=RunExit(0, "ok", "well"))
    run_dir = make_run(tmp_path, "b", started_time=2.0)
    for other in ("two words", "new\nline", ".hidden", "caf\N{LATIN SMALL LETTER E WITH ACUTE}"):
        make_run(tmp_path, other)
    (tmp_path / "link").symlink_to(make_run(tmp_path / "notes", "c").path)
    (tmp_path / "file").touch()
    with lease.hold(run_dir.lease):
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
    run_dir = make_run(tmp_path, "a", **changes)
    with lease.hold(run_dir.lease):
        assert list_runs(tmp_path)[0].state == state


def test_a_live_process_that_holds_no_lease_is_no_supervisor(tmp_path):
    make_run(tmp_path, "a")
    assert list_runs(tmp_path)[0].state == "lost"


def test_a_runs_id_is_its_folders_name_whatever_its_state_says(tmp_path):
    run_dir = make_run(tmp_path / "runs", "a")
    make_run(tmp_path, "evil")
    write_state(run_dir.state, replace(read_state(run_dir.state), run_id="../evil"))
    run_dir.path.rename(tmp_path / "runs" / "renamed")
    assert [run.run_id for run in list_runs(tmp_path / "runs")] == ["renamed"]
    assert find_run(tmp_path / "runs", "ren").path == tmp_path / "runs" / "renamed"
    with pytest.raises(DsforgeError):
        find_run(tmp_path / "runs", "../evil")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("started_time", "abc"),
        ("started_time", -1.0),
        ("started_time", 1e300),
        ("started_time", float("nan")),
        ("ended_time", True),
        ("attempt", 1_000_000_000),
        ("attempt", 0),
        ("attempt", 1.0),
        ("state", "dancing"),
        ("host", None),
        ("supervisor", {"pid": 2**40, "start": 1}),
        ("supervisor", {"pid": -1, "start": 1}),
        ("supervisor", {"pid": "1", "start": 1}),
        ("restarts", [{"attempt": 1}]),
        ("exit", {"code": "x", "kind": "ok", "message": "m"}),
        ("exit", []),
        ("schema_version", 2),
        ("more", 1),
    ],
)
def test_a_state_that_cannot_be_is_unknown(tmp_path, field, value):
    run_dir = make_run(tmp_path, "a")
    data = json.loads(run_dir.state.read_text())
    run_dir.state.write_text(json.dumps({**data, field: value}))
    assert read_state(run_dir.state) is None
    assert list_runs(tmp_path)[0].state == "unknown"


def test_a_state_of_any_shape_is_unknown(tmp_path):
    run_dir = make_run(tmp_path, "a")
    for text in ("", "[]", "7", '"x"', "[" * 100_000, "\x00", "{}"):
        run_dir.state.write_text(text)
        assert read_state(run_dir.state) is None


def test_a_torn_state_is_unknown_and_does_not_hide_the_others(tmp_path):
    make_run(tmp_path, "a").state.write_text('{"run_id": "a"')
    with lease.hold(make_run(tmp_path, "b").lease):
        listed = list_runs(tmp_path)
    assert {run.run_id: run.state for run in listed} == {"a": "unknown", "b": "running"}


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


def test_the_latest_run_needs_no_id(tmp_path):
    with pytest.raises(DsforgeError, match=r"there is no run$"):
        find_run(tmp_path)
    for run_id, started in (("b", 1.0), ("a", 3.0), ("c", 2.0)):
        make_run(tmp_path, run_id, started_time=started)
    assert find_run(tmp_path).path.name == "a"
    assert find_run(tmp_path, "latest").path.name == "a"


@pytest.mark.parametrize("run_id", ["", ".", "..", "../a", "/"])
def test_an_id_never_leaves_the_root(tmp_path, run_id):
    make_run(tmp_path / "runs", "a")
    make_run(tmp_path, "a")
    with pytest.raises(DsforgeError):
        find_run(tmp_path / "runs", run_id)
