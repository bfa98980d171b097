"""Looks at real processes, with each of the tools."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from dsforge.base import processes
from dsforge.base.processes import ProcessId
from dsforge.rank import stacks
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import StackSample, parse_line, read_lines
from tests.launch_support.bundles import REPOSITORY

PYTHON = sys.executable
PROGRAM = """\
import sys, threading, time
if {answers}:
    from dsforge.base import stack_dump
    stack_dump.install()
def helps():
    time.sleep(600)
threading.Thread(target=helps, daemon=True).start()
def reads():
    print(flush=True)
    {does}
reads()
"""


@pytest.fixture
def start(tmp_path) -> Iterator:
    started: list[subprocess.Popen[bytes]] = []

    def begin(does: str = "time.sleep(600)", *, answers: bool = True) -> ProcessId:
        script = tmp_path / f"program-{len(started)}.py"
        script.write_text(PROGRAM.format(does=does, answers=answers))
        process = subprocess.Popen(
            [PYTHON, str(script)],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        found = processes.identify(process.pid)
        assert found is not None
        return found

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def without_py_spy(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))


def stop(process: ProcessId) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    while (status := processes.status_of(process)) is not None and status.state != "T":
        time.sleep(0.01)


def answered(tmp_path, **trainers: ProcessId) -> tuple[dict[int, list[StackSample]], str]:
    attempt = AttemptDir(tmp_path)
    stacks.answer(attempt, 3, {int(name[1:]): trainer for name, trainer in trainers.items()}, 5)
    found: dict[int, list[StackSample]] = {}
    for _, line in read_lines(attempt.rank_stream(3)):
        sample = parse_line(line)
        assert isinstance(sample, StackSample)
        assert (sample.node, sample.request) == (3, 5)
        found.setdefault(sample.rank, []).append(sample)
    return found, attempt.stacks(3).read_text()


def test_py_spy_looks_twice_also_at_a_stopped_process(start, tmp_path):
    asleep, stopped, busy = start(), start(), start("while True: pass")
    stop(stopped)
    found, text = answered(tmp_path, r0=asleep, r1=stopped, r2=busy)
    assert {rank: [one.is_last for one in looks] for rank, looks in found.items()} == {
        rank: [False, True] for rank in range(3)
    }
    assert {rank: looks[1].state for rank, looks in found.items()} == {0: "S", 1: "T", 2: "R"}
    for looks in found.values():
        assert [(one.tool, one.frames[0].name) for one in looks] == [("py-spy", "reads")] * 2
    assert found[0][1].frames[0].code == "time.sleep(600)"
    used = {rank: looks[1].cpu_seconds - looks[0].cpu_seconds for rank, looks in found.items()}
    assert used[0] == used[1] == 0.0
    assert used[2] > 0.1
    assert text.count("== rank 1, ") == 2
    assert "    helps (" in text


def test_a_trainer_writes_its_stacks_itself_where_py_spy_is_not(start, tmp_path, without_py_spy):
    found, text = answered(tmp_path, r0=start("threading.Event().wait()"))
    assert [one.tool for one in found[0]] == ["faulthandler"] * 2
    assert [frame.name for frame in found[0][1].frames[-2:]] == ["reads", "<module>"]
    assert found[0][0].frames == found[0][1].frames
    assert "by faulthandler" in text


def test_a_stopped_trainer_is_not_asked_for_what_it_would_answer_later(start, tmp_path, without_py_spy):
    stopped = start()
    stop(stopped)
    found, _ = answered(tmp_path, r0=stopped)
    assert [(one.tool, one.state, one.frames) for one in found[0]] == [("/proc", "T", ())] * 2


def test_a_program_that_does_not_answer_the_signal_is_not_sent_it(start, tmp_path, without_py_spy):
    other = start(answers=False)
    found, _ = answered(tmp_path, r0=other)
    assert [one.tool for one in found[0]] == ["/proc"] * 2
    assert processes.is_alive(other)


def test_who_ends_in_between_was_seen_once(start, tmp_path, monkeypatch):
    ends, stays = start(), start()
    look = stacks._look

    def look_and_end(trainer, *where, **when):
        seen = look(trainer, *where, **when)
        if trainer == ends:
            os.kill(ends.pid, signal.SIGKILL)
            while processes.is_alive(ends):
                time.sleep(0.01)
        return seen

    monkeypatch.setattr(stacks, "_look", look_and_end)
    found, _ = answered(tmp_path, r0=ends, r1=stays)
    assert {rank: len(looks) for rank, looks in found.items()} == {0: 1, 1: 2}


def test_a_tool_that_hangs_is_not_waited_for(start, tmp_path, monkeypatch):
    (tmp_path / "py-spy").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "py-spy").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(stacks, "SPY_SECONDS", 0.3)
    found, _ = answered(tmp_path, r0=start())
    assert [one.tool for one in found[0]] == ["faulthandler"] * 2


def test_a_look_that_never_ends_is_not_waited_for(start, tmp_path, monkeypatch):
    hangs = tmp_path / "hangs"
    os.mkfifo(hangs)
    monkeypatch.setattr(stacks, "LOOK_SECONDS", 2.0)
    looked_at, other = start(), start()
    read = stacks.linecache.getline
    # As a file does of which the server is gone.
    monkeypatch.setattr(
        stacks.linecache,
        "getline",
        lambda file, line: hangs.read_text() if "-0" in file else read(file, line),
    )
    found, _ = answered(tmp_path, r0=looked_at, r1=other)
    assert {rank: len(looks) for rank, looks in found.items()} == {1: 2}
