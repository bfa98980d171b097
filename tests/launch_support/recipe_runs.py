"""A run of a tiny recipe through the real command and the real trainer, for tests that signal and kill."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dsforge.base.processes import ProcessId
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import RunState, read_state
from dsforge.records.streams import Event, ExitRecord, Line, MetricsLine, WorldReport, parse_line, read_lines

RECIPE = """\
version: 1
name: job
model: {arch: gpt, layers: 2, hidden: 32, heads: 2, vocab: 300}
cluster: {gpus_per_node: 2, gpu: cpu}
batch: {global: 4, micro: 1, seq_len: 16}
train: {precision: fp32, steps: 100000}
optimizer: {lr_schedule: constant, warmup_steps: 0}
"""
PATIENCE_SECONDS = 180.0


def wait_until(ready: Callable[[], bool], every_seconds: float = 0.05) -> None:
    """Wait; what is not there yet is waited for, too."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with contextlib.suppress(ValueError, FileNotFoundError, KeyError):
            if ready():
                return
        assert time.monotonic() < deadline, "the run did not come as far as that"
        time.sleep(every_seconds)


class RecipeRun:
    """One `dsforge launch recipe.yaml CHANGES` in a folder; later ones in the same folder go on."""

    def __init__(self, folder: Path, *changes: str) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "recipe.yaml").write_text(RECIPE)
        self.folder = folder
        self._before = set(self._runs())
        self._run_dir: RunDir | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dsforge.cli", "launch", "recipe.yaml", "--json", *changes],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _runs(self) -> list[Path]:
        root = self.folder / "runs"
        return list(root.glob("[!.]*"))

    @property
    def run_dir(self) -> RunDir:
        if self._run_dir is None:
            (path,) = set(self._runs()) - self._before
            self._run_dir = RunDir(path)
        return self._run_dir

    def end(self) -> tuple[int, dict[str, Any], str]:
        """Wait for the end; exit code, what was printed on stdout, what on stderr."""
        out, err = self.process.communicate(timeout=600)
        return self.process.returncode, json.loads(out), err

    def state(self) -> RunState:
        state = read_state(self.run_dir.state)
        if state is None:
            raise FileNotFoundError(self.run_dir.state)
        return state

    def lines(self, attempt: int) -> list[Line]:
        directory = self.run_dir.attempt(attempt)
        streams = (directory.rank_stream(0), directory.metrics, directory.events)
        parsed = (parse_line(line) for stream in streams for _, line in read_lines(stream))
        return [line for line in parsed if line is not None]

    def metrics(self, attempt: int) -> list[MetricsLine]:
        return [line for line in self.lines(attempt) if isinstance(line, MetricsLine)]

    def events(self, attempt: int) -> list[Event]:
        return [line for line in self.lines(attempt) if isinstance(line, Event)]

    def exits(self) -> dict[int, ExitRecord]:
        lines = self.lines(self.state().attempt)
        return {line.rank: line for line in lines if isinstance(line, ExitRecord)}

    def reports(self) -> dict[int, WorldReport]:
        lines = self.lines(self.state().attempt)
        return {line.rank: line for line in lines if isinstance(line, WorldReport)}

    def wrapper(self, rank: int) -> ProcessId:
        report = self.reports()[rank]
        return ProcessId(report.pid, report.pid_start)

    def trainer(self, rank: int) -> ProcessId:
        report = self.reports()[rank]
        return ProcessId(report.trainer_pid, report.trainer_pid_start)

    def until_step(self, step: int) -> None:
        self.until(lambda: any(line.step >= step for line in self.metrics(self.state().attempt)))

    def until(self, ready: Callable[[], bool], every_seconds: float = 0.05) -> None:
        wait_until(lambda: self._check(ready), every_seconds)

    def _check(self, ready: Callable[[], bool]) -> bool:
        assert self.process.poll() is None, self.process.communicate()
        return ready()

    def clean_up(self) -> None:
        """Kill the command; its ranks end with it."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
