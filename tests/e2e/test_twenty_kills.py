"""Twenty kills of one job, half of them aimed at saves: it ends with the losses of an untouched one."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dsforge.base import processes
from dsforge.base.processes import ProcessId
from dsforge.records.checkpoint import CheckpointManifest, find_damage, read_manifest, whole_checkpoints
from tests.launch_support.recipe_runs import RecipeRun

pytestmark = pytest.mark.e2e

KILLS = 20
STEPS = 300
EVERY = 5
SEED = 20
WORDS = ("parallel.pp=2", f"train.steps={STEPS}")


def damage(folder: Path) -> list[str]:
    """Read every byte of every checkpoint that calls itself whole."""
    found = []
    for _, checkpoint in whole_checkpoints(folder):
        manifest = read_manifest(checkpoint)
        assert isinstance(manifest, CheckpointManifest)
        faults = [find_damage(checkpoint / name, entry) for name, entry in manifest.files.items()]
        found += [f"{fault.file} {fault.reason}" for fault in faults if fault is not None]
    return found


class Killer:
    """Kills one process after another, each in an attempt of its own."""

    def __init__(self, job: Callable[[], RecipeRun], kept: Path) -> None:
        self.runs = [job()]
        self._job = job
        self._kept = kept
        self._draw = random.Random(SEED)

    @property
    def run(self) -> RecipeRun:
        return self.runs[-1]

    def kill(self, number: int) -> None:
        self.run.until(lambda: self.run.state().attempt >= 1)
        before = self.run.state().attempt
        # No two in a row before a step: three would be taken for a fault of the job.
        moment = ("save", "save", "steps", "start")[number % 4]
        victim = getattr(self, f"_at_{moment}")()
        assert processes.send_signal(victim, signal.SIGKILL)
        self.run.until(lambda: self.run.state().attempt == before + 1)
        assert damage(self._kept) == []

    def kill_dsforge(self) -> None:
        """The supervisor itself, during a save; the same command then goes on."""
        self._at_save()
        self.run.process.kill()
        self.run.process.communicate()
        self.runs.append(self._job())
        self.run.until(lambda: self.run.state().attempt == 1)

    def _at_start(self) -> ProcessId:
        self.run.until(lambda: self.run.state().launcher is not None)
        time.sleep(self._draw.uniform(0.0, 4.0))
        launcher = self.run.state().launcher
        assert launcher is not None
        ranks = [self.run.trainer(rank) for rank in self.run.reports()]
        return self._draw.choice([launcher, *ranks])

    def _at_steps(self) -> ProcessId:
        self._until_a_step()
        time.sleep(self._draw.uniform(0.0, 0.2))
        launcher = processes.identify(processes.parent_of(self.run.wrapper(0).pid) or 0)
        assert launcher is not None
        ranks = [which(rank) for which in (self.run.wrapper, self.run.trainer) for rank in (0, 1)]
        return self._draw.choice([launcher, *ranks])

    def _at_save(self) -> ProcessId:
        self._until_a_step()
        victim = self.run.trainer(self._draw.randrange(2))
        delay = self._draw.uniform(0.0, 0.04)
        for _ in range(self._draw.randint(1, 3)):
            self._until_a_save_begins()
        time.sleep(delay)
        return victim

    def _until_a_save_begins(self) -> None:
        seen = self._saving()
        self.run.until(lambda: bool(self._saving() - seen), every_seconds=0.001)

    def _saving(self) -> set[Path]:
        return set(self._kept.glob("*.tmp-*"))

    def _until_a_step(self) -> None:
        self.run.until(lambda: bool(self.run.metrics(self.run.state().attempt)))


def test_twenty_kills_lose_no_step_no_sample_and_no_checkpoint(job, tmp_path):
    undisturbed = job(tmp_path / "undisturbed", *WORDS)
    code, expected, err = undisturbed.end()
    assert code == 0, err
    assert len(expected["losses"]) == STEPS

    kept = tmp_path / "killed" / "kept"
    saves = ("checkpoint.dir=kept", f"checkpoint.every_steps={EVERY}", "checkpoint.keep=2")
    killer = Killer(lambda: job(kept.parent, *WORDS, *saves, f"launch.restarts={KILLS}"), kept)
    for number in range(KILLS - 1):
        if number == KILLS // 2:
            killer.kill_dsforge()
        killer.kill(number)
    code, _, err = killer.run.end()
    assert code == 0, err

    attempts = [(run, number) for run in killer.runs for number in run.run_dir.attempts()]
    assert len(attempts) == KILLS + 1
    made = [lines for run, number in attempts if (lines := run.metrics(number))]
    starts = [lines[0].step - 1 for lines in made]
    assert starts == sorted(starts)
    assert len(set(starts)) > KILLS // 4  # kills did not keep it from getting on
    resumed = [resumed_after(run, number) for run, number in attempts if run.metrics(number)]
    assert starts == resumed
    spans, losses = [], []
    for lines, start, following in zip(made, starts, [*starts[1:], STEPS], strict=True):
        assert [line.step for line in lines] == list(range(start + 1, start + 1 + len(lines)))
        again = expected["losses"][start : start + len(lines)]
        assert [line.loss for line in lines] == pytest.approx(again, abs=1e-5, rel=0.0)
        counted = [line for line in lines if line.step <= following]
        spans += [(line.first_sample, line.last_sample) for line in counted]
        losses += [line.loss for line in counted]
    assert spans == [(4 * step, 4 * step + 3) for step in range(STEPS)]
    assert losses == pytest.approx(expected["losses"], abs=1e-5, rel=0.0)
    assert [step for step, _ in whole_checkpoints(kept)] == [STEPS - EVERY, STEPS]
    assert damage(kept) == []
    assert list(kept.glob("*.tmp-*")) == []


def resumed_after(run: RecipeRun, attempt: int) -> int:
    """Return the step that an attempt says it went on from, 0 for none."""
    steps = [line.data["step"] for line in run.events(attempt) if line.name == "resumed"]
    return steps[0] if steps else 0
