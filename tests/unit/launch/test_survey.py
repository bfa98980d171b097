"""Conversations with hosts: the real probe behind stand-ins for ssh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from dsforge.base import processes
from dsforge.base.lease import hold
from dsforge.launch.survey import Seen, survey
from dsforge.rank.facts import leftovers, look_at_folder, mark_of
from dsforge.records import environment
from dsforge.records.probe import MARK, Question
from tests.launch_support.bundles import REPOSITORY

ENVIRON = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
PROBE = f"exec {sys.executable} -m dsforge.rank.probe"


def ask(scripts: dict[str, str], seconds: float = 60.0, folders: dict[str, str] | None = None) -> list[Seen]:
    question = Question({"GLOO_SOCKET_IFNAME": "lo"}, False, "127.0.0.1", folders or {}, (), "/nowhere")
    return survey(list(scripts), lambda host: ["sh", "-c", scripts[host]], ENVIRON, question, (0,), seconds)


def test_hosts_answer_at_once_each_in_its_own_way(tmp_path: Path):
    (tmp_path / "token").write_text("text")
    refused = "echo 'ssh: connect to host b port 22: Connection refused' >&2; exit 255"
    greeting = f"printf 'Welcome\\nto '; {PROBE}"
    # What a shell leaves behind may hold its streams open.
    slow = "sleep 60 & echo waiting >&2; wait"
    scripts = {"a": PROBE, "b": refused, "c": greeting, "d": slow, "e": "echo '" + MARK + "[]'; cat"}
    a, b, c, d, e = ask(scripts, 10.0, {str(tmp_path): "token"})
    for well in (a, c):
        assert well.silence is None
        assert well.facts is not None
        assert well.facts.machine == processes.machine()
        assert well.facts.folders[0].token == "text"
        assert abs(well.offset_seconds) <= well.round_trip_seconds / 2 + 0.01
        assert well.meeting_fault is None
        # Loopback addresses are nobody else's, so none of them is tried.
        assert well.faults == {}
    assert a.listening is not None
    assert a.listening.meeting_port
    assert (a.noise, c.noise) == ((), ("Welcome", "to"))
    for silent, code, words in ((b, 255, "Connection refused"), (d, None, "waiting"), (e, None, "")):
        assert silent.facts is None
        assert silent.silence is not None
        assert silent.silence.code == code
        assert words in " ".join(silent.silence.words)


def test_a_probe_ends_with_who_asks_and_refuses_what_it_does_not_understand():
    words = [sys.executable, "-m", "dsforge.rank.probe"]
    done = subprocess.run(words, input=b"", env=ENVIRON, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"")
    wrong = json.dumps({"ask": "facts", "what": {"environ": 7}}).encode()
    done = subprocess.run(words, input=wrong, env=ENVIRON, capture_output=True, check=False, timeout=60)
    assert done.returncode == 3
    assert b"a question that is not understood: environ is 7" in done.stderr


def test_a_folder_is_tried_and_left_as_it_was(tmp_path: Path):
    (tmp_path / "token").write_text("text")
    there = look_at_folder(str(tmp_path), "token")
    assert (there.token, there.refused) == ("text", None)
    assert there.free_bytes > 0
    assert [path.name for path in tmp_path.iterdir()] == ["token"]
    missing = look_at_folder(str(tmp_path / "none"), "token")
    assert (missing.token, missing.refused, missing.free_bytes) == (None, "No such file or directory", 0)


def test_files_of_one_size_are_told_apart_by_beginning_and_end(tmp_path: Path):
    texts = {"a": b"x" * 3 * 2**20, "b": b"y" + b"x" * (3 * 2**20 - 1), "c": b"x" * (3 * 2**20 - 1) + b"y"}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
    marks = [mark_of(str(tmp_path / name)) for name in texts]
    assert {mark.size_bytes for mark in marks} == {3 * 2**20}
    assert len({mark.digest for mark in marks}) == 3
    assert mark_of(str(tmp_path / "none")).size_bytes is None


def test_processes_of_an_attempt_without_a_supervisor_are_found(tmp_path: Path):
    lease = tmp_path / "lease"
    marks = {environment.ATTEMPT_DIR: str(tmp_path), environment.LEASE: str(lease)}
    with subprocess.Popen(["sleep", "60"], env={**os.environ, **marks}) as left:
        try:
            deadline = time.monotonic() + 60
            while not (found := [one for one in leftovers() if one.attempt == str(tmp_path)]):
                assert time.monotonic() < deadline
            assert [(one.pids, one.is_dead) for one in found] == [((left.pid,), True)]
            with hold(lease):
                assert [one.is_dead for one in leftovers() if one.attempt == str(tmp_path)] == [False]
        finally:
            left.kill()


def test_one_host_has_no_neighbour():
    (one,) = ask({"a": PROBE})
    assert (one.faults, one.meeting_fault) == ({}, None)


def test_a_host_that_sends_without_end_is_told_from_a_slow_one():
    scripts = {
        "line": "head -c 40000000 /dev/zero | tr '\\0' x; sleep 60",
        "lines": "yes | head -n 3000000; sleep 60",
    }
    line, lines = ask(scripts)
    assert line.silence is not None
    assert lines.silence is not None
    assert line.silence.why == "it sends more than 16 MiB on one line that is no answer"
    assert lines.silence.why == "it sends more than 1 MiB that is no answer"
    assert lines.noise == ("y",) * 20
