"""A lost run stays lost until all of its hosts have answered: a stand-in for ssh, our own program behind."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsforge.launch import reap
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import read_state
from tests.launch_support.run_folders import NOBODY, make_run

ROOT = Path(__file__).parents[3]


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """A lost run on two hosts; `deaf` answers once the file of that name is gone."""
    (tmp_path / "deaf").touch()
    (tmp_path / "bin").mkdir()
    ssh = tmp_path / "bin" / "ssh"
    ssh.write_text(
        f"#!/bin/sh\ncase \"$*\" in *' -- deaf '*) if [ -e {tmp_path}/deaf ]; then\n"
        "echo 'No route to host' >&2; exit 255; fi;; esac\n"
        'for last; do :; done\nexec /bin/sh -c "$last"\n'
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    run_dir = make_run(tmp_path / "runs", "a", supervisor=NOBODY)
    run_dir.attempt(1).hostfile.write_text("near slots=1\ndeaf slots=1\n")
    run_dir.bundle.mkdir()
    (run_dir.bundle / "plan.json").write_text(json.dumps({"launch": {"launcher": "ssh"}}))
    return run_dir


def environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def word(run_dir: RunDir) -> str:
    state = read_state(run_dir.state)
    assert state is not None
    return state.state


def test_stop_says_who_did_not_answer_and_leaves_the_run_lost(run_dir: RunDir, tmp_path: Path):
    result = reap.stop(run_dir, environ(), at_once=False)
    assert (result.how, result.is_done) == ("silent", False)
    assert "deaf did not answer (No route to host)" in result.message
    assert word(run_dir) == "running"
    (tmp_path / "deaf").unlink()
    result = reap.stop(run_dir, environ(), at_once=False)
    assert (result.how, result.is_done, word(run_dir)) == ("ranks", True, "stopped")


def test_reap_ends_the_run_when_all_have_answered(run_dir: RunDir, tmp_path: Path):
    reaped = reap.reap(run_dir, environ())
    assert reaped.silent == {"deaf": "No route to host"}
    assert "near" in reaped.hosts
    assert (reaped.is_clean, word(run_dir)) == (False, "running")
    (tmp_path / "deaf").unlink()
    assert reap.reap(run_dir, environ()).is_clean
    assert word(run_dir) == "failed"


def test_the_command_fails_where_a_host_is_silent(
    run_dir: RunDir, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    stopped = cli("runs", "stop", "a", "--json", "--runs", run_dir.path.parent)
    assert (stopped.code, stopped.json["how"]) == (3, "silent")
