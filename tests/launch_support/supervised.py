"""A supervised run in a process of its own, for tests that signal and kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dsforge.base import processes
from dsforge.base.processes import ProcessId
from dsforge.records.run_dir import AttemptDir, RunDir
from dsforge.records.run_state import RunState, read_state
from dsforge.records.streams import ExitRecord, MetricsLine, WorldReport, read_lines
from tests.launch_support.bundles import REPOSITORY

PATIENCE_SECONDS = 120.0


class Supervised:
    def __init__(
        self,
        folder: Path,
        *,
        plan: dict[str, Any] | None = None,
        bundle: dict[str, Any] | None = None,
        environ: dict[str, str] | None = None,
    ) -> None:
        folder.mkdir()
        self.folder = folder
        (folder / "request.json").write_text(json.dumps({"plan": plan or {}, "bundle": bundle or {}}))
        with (folder / "driver.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.launch_support.driver", str(folder)],
                cwd=REPOSITORY,
                env={**os.environ, "OMP_NUM_THREADS": "1", **(environ or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def run_dir(self) -> RunDir:
        (path,) = (self.folder / "runs").glob("[!.]*")
        return RunDir(path)

    @property
    def attempt(self) -> AttemptDir:
        state = self.state()
        return self.run_dir.attempt(state.attempt)

    def state(self) -> RunState:
        state = read_state(self.run_dir.state)
        assert state is not None
        return state

    def reports(self) -> dict[int, WorldReport]:
        lines = [line for _, line in read_lines(self.attempt.rank_stream(0)) if line["kind"] == "world"]
        return {line["rank"]: WorldReport.from_dict(line) for line in lines}

    def exits(self) -> dict[int, ExitRecord]:
        lines = [line for _, line in read_lines(self.attempt.rank_stream(0)) if line["kind"] == "exit"]
        return {line["rank"]: ExitRecord.from_dict(line) for line in lines}

    def steps(self) -> list[MetricsLine]:
        return [MetricsLine.from_dict(line) for _, line in read_lines(self.attempt.metrics)]

    def until(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._is(ready):
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.1)

    def until_training(self) -> None:
        self.until(lambda: len(self.reports()) == 2 and len(self.steps()) >= 2)

    def wrapper(self, rank: int) -> ProcessId:
        report = self.reports()[rank]
        return ProcessId(report.pid, report.pid_start)

    def trainer(self, rank: int) -> ProcessId:
        report = self.reports()[rank]
        return ProcessId(report.trainer_pid, report.trainer_pid_start)

    def kill(self, process: ProcessId | None, number: int = signal.SIGKILL) -> None:
        assert process is not None
        assert processes.send_signal(process, number)

    def left(self) -> list[ProcessId]:
        return processes.carrying("DSFORGE_RUN_ID", self.run_dir.path.name)

    def outcome(self) -> dict[str, Any]:
        """Wait for the end; no process may be left. The driver's exit code is the outcome's."""
        code = self.process.wait(PATIENCE_SECONDS)
        assert (self.folder / "outcome.json").exists(), self.log()
        found = json.loads((self.folder / "outcome.json").read_text())
        assert code == found["code"]
        assert self.left() == []
        state_exit = self.state().exit
        assert state_exit is not None
        assert (state_exit.code, state_exit.kind) == (found["code"], found["kind"])
        return found

    def log(self) -> str:
        parts = [self.folder / "driver.log", *self.folder.glob("runs/*/attempt-*/*")]
        return "\n".join(f"--- {path}\n{path.read_text(errors='replace')}" for path in parts)

    def clean_up(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for run in self.folder.glob("runs/*"):
            for process in processes.carrying("DSFORGE_RUN_ID", run.name):
                processes.send_signal(process, signal.SIGKILL)

    @staticmethod
    def _is(ready: Callable[[], bool]) -> bool:
        try:
            return ready()
        except (ValueError, AssertionError, FileNotFoundError):
            return False  # the run directory is not there yet
