"""A bundle that a user runs without dsforge: the same files, no supervisor."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsforge.base import processes
from dsforge.base.processes import ProcessId
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import ExitRecord, WorldReport, parse_line, read_lines
from dsforge.render.bundle import render
from tests.launch_support.bundles import make_bundle
from tests.launch_support.plans import make_plan

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 120.0


def by_hand(folder: Path, **options) -> subprocess.Popen[str]:
    bundle = folder / "bundle"
    make_bundle(make_plan(), **options.pop("bundle", {})).write(bundle)
    environ = {
        **os.environ,
        "DSFORGE_DEEPSPEED": str(Path(sys.executable).parent / "deepspeed"),
        "DSFORGE_ATTEMPT_DIR": str(folder / "attempt-1"),
        "MASTER_PORT": "29517",
        "OMP_NUM_THREADS": "1",
        **options,
    }
    (folder / "attempt-1").mkdir()
    return subprocess.Popen(
        ["bash", str(bundle / "launch.sh")], cwd=folder, env=environ, stdout=subprocess.PIPE, text=True
    )


def rank_lines(folder: Path):
    stream = AttemptDir(folder / "attempt-1").rank_stream(0)
    return [parse_line(line) for _, line in read_lines(stream)]


def test_ranks_speak_and_their_failure_is_the_exit_code(tmp_path):
    process = by_hand(tmp_path, TINY_FAIL_RANK="1", TINY_FAIL_STEP="2")
    shown, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    assert "[rank 1] RuntimeError: rank 1 fails on purpose" in shown
    exits = {line.rank: line for line in rank_lines(tmp_path) if isinstance(line, ExitRecord)}
    assert (exits[1].cause, exits[1].code) == ("exception", 1)


def test_each_start_takes_an_attempt_of_its_own(tmp_path):
    """The rendered script itself, with something in deepspeed's place that says where it would write."""
    deepspeed = tmp_path / "deepspeed"
    deepspeed.write_text('#!/bin/sh\necho "$DSFORGE_ATTEMPT_DIR"; test -d "$DSFORGE_ATTEMPT_DIR"\n')
    deepspeed.chmod(0o755)
    render(make_plan()).write(tmp_path / "bundle")
    (tmp_path / "here").mkdir()
    environ = {"PATH": os.environ["PATH"], "DSFORGE_DEEPSPEED": str(deepspeed), "DSFORGE_CORPUS": "none"}

    def start(**more: str) -> subprocess.CompletedProcess[str]:
        words = ["bash", str(tmp_path / "bundle" / "launch.sh")]
        return subprocess.run(
            words, cwd=tmp_path / "here", env={**environ, **more}, capture_output=True, text=True, check=False
        )

    runs = tmp_path / "here" / "dsforge-run"
    assert [start().stdout for _ in range(3)] == [f"{runs}/attempt-{number}\n" for number in (1, 2, 3)]
    chosen = start(DSFORGE_ATTEMPT_DIR=str(tmp_path / "mine")).stdout
    assert chosen == f"{tmp_path}/mine\n"
    (runs / "attempt-4").symlink_to("nowhere")  # no folder can be made there, and it does not exist
    refused = start()
    assert refused.returncode == 1
    assert "attempt-4" in refused.stderr


def test_another_world_than_the_plans_starts_no_trainer(tmp_path):
    process = by_hand(tmp_path, bundle={"slots": 1})
    shown, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 4
    assert "is done" not in shown
    (record,) = rank_lines(tmp_path)
    assert (record.cause, record.message) == (
        "world_mismatch",
        "the launcher started 1 ranks, the plan has 2",
    )


def test_ranks_do_not_outlive_their_launcher(tmp_path):
    process = by_hand(tmp_path, TINY_STEPS="0", TINY_MARK=str(tmp_path))
    deadline = time.monotonic() + PATIENCE_SECONDS
    reports: list[WorldReport] = []
    while len(reports) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        reports = [line for line in rank_lines(tmp_path) if isinstance(line, WorldReport)]
    launcher = processes.identify(processes.parent_of(reports[0].pid))
    assert processes.send_signal(launcher, 9)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0  # what the launcher says about killed ranks
    trainers = [ProcessId(report.trainer_pid, report.trainer_pid_start) for report in reports]
    while any(map(processes.is_alive, trainers)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert processes.carrying("TINY_MARK", str(tmp_path)) == []
    causes = [line.cause for line in rank_lines(tmp_path) if isinstance(line, ExitRecord)]
    assert causes == ["parent_died", "parent_died"]
