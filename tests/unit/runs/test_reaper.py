"""The program that ends what is left of a run on a host, asked over a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from dsforge.base import processes
from dsforge.base.canonical import dump_line, loads
from dsforge.records.probe import MARK, End

SLEEP = "import sys, time; {}; print(); sys.stdout.flush(); time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def sleeper(run_id: str, attempt: Path, setup: str = "pass") -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEP.format(setup)],
        stdout=subprocess.PIPE,
        env={**os.environ, "DSFORGE_RUN_ID": run_id, "DSFORGE_ATTEMPT_DIR": str(attempt)},
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def ask(line: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "dsforge.runs.reaper")
    return subprocess.run(command, input=line, capture_output=True, text=True, check=False, timeout=60)


def test_wrappers_are_told_the_rest_is_killed_and_strangers_live(tmp_path: Path):
    run_id = f"reaped-{os.getpid()}"
    wrapper = sleeper(run_id, tmp_path / "attempt-1")
    deaf = sleeper(run_id, tmp_path / "attempt-2", DEAF)
    strangers = [sleeper(run_id, tmp_path / "copy" / "attempt-1"), sleeper("another", tmp_path / "attempt-1")]
    try:
        known = tuple(filter(None, (processes.identify(one.pid) for one in (wrapper, strangers[1]))))
        asked = End(run_id, str(tmp_path.resolve()), known)
        done = ask(dump_line({"ask": "end", "what": asdict(asked)}))
        assert done.returncode == 0, done.stderr
        assert loads(done.stdout.removeprefix(MARK)) == {"found": 2, "left": 0}
        assert (wrapper.wait(), deaf.wait()) == (-15, -9)
        assert [one.poll() for one in strangers] == [None, None]
    finally:
        for process in (wrapper, deaf, *strangers):
            process.kill()
            process.communicate()


@pytest.mark.parametrize("line", ["", "{}", "[1]", '{"what": {"run_id": 1}}'])
def test_what_is_no_question_ends_nothing(line: str):
    done = ask(line + "\n")
    assert (done.returncode, done.stdout) == (3, "")
    assert "a question that is not understood" in done.stderr
