"""What `dsforge launch` costs beside the same bundle started by hand: bare `deepspeed` with its command line.

Run: make bench. The peer is the rendered launch.sh: the deepspeed command and the variables it needs.
Start: from starting the program to the first step on record. Step: the time between two lines of metrics.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path

import measure

from dsforge.data.prepare import builtin_corpus
from dsforge.launch.machine import free_port

ROUNDS = 5
RECIPE = Path(__file__).resolve().parent / "training.yaml"
CHANGES = (
    *("model.layers=2", "model.hidden=64", "model.vocab=512", "batch.seq_len=64"),
    *("cluster.gpus_per_node=2", "train.steps=60", "checkpoint.at_end=false"),
)
"""Steps of milliseconds on two ranks: what a supervisor takes from them would show."""


class Contest:
    """Both ways to start one bundle; each call gives the seconds to the first step, and keeps a step's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = measure.environment(OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu")
        render = [measure.BIN / "dsforge", "render", RECIPE, *CHANGES, "--out", folder / "bundle"]
        measure.run(render, environ=self.environ)
        plan = json.loads((folder / "bundle" / "plan.json").read_text("utf-8"))
        self.corpus = str(builtin_corpus(plan["data"]["builtin_vocab"]))
        self.step_seconds: dict[str, list[float]] = {"dsforge launch": [], "deepspeed": []}
        self.numbers = itertools.count(1)

    def _started(self, name: str, began: float, metrics: Path) -> float:
        first = json.loads(metrics.read_text("utf-8").partition("\n")[0])
        self.step_seconds[name].append(measure.read_steps(metrics).seconds)
        return first["time"] - began

    def dsforge(self) -> float:
        """Start with the supervisor."""
        words = ["launch", RECIPE, *CHANGES, "--runs", self.folder / "runs", "--json"]
        began = time.time()
        told = json.loads(measure.run([measure.BIN / "dsforge", *words], environ=self.environ))
        return self._started("dsforge launch", began, Path(told["run"], "attempt-1", "metrics.jsonl"))

    def deepspeed(self) -> float:
        """Start by hand."""
        attempt = self.folder / f"by-hand-{next(self.numbers)}"
        variables = {
            "DSFORGE_ATTEMPT_DIR": str(attempt),
            "DSFORGE_CORPUS": self.corpus,
            "MASTER_PORT": str(free_port()),
        }
        began = time.time()
        measure.run(["bash", self.folder / "bundle" / "launch.sh"], environ={**self.environ, **variables})
        return self._started("deepspeed", began, attempt / "metrics.jsonl")


def main() -> None:
    """Let both start in turn and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    machine = measure.machine()
    with tempfile.TemporaryDirectory() as folder:
        contest = Contest(Path(folder))
        starts = measure.in_turn({"dsforge launch": contest.dsforge, "deepspeed": contest.deepspeed}, rounds)
    ours, theirs = starts["dsforge launch"], starts["deepspeed"]
    added = statistics.median(a - b for a, b in zip(ours, theirs, strict=True))
    steps = contest.step_seconds
    measure.report(
        "launching",
        {
            "seconds_to_first_step": measure.medians(starts, 2),
            "seconds_added": round(added, 2),
            "step_seconds": measure.medians(steps, 5),
            "step_ratio": measure.ratio(steps["dsforge launch"], steps["deepspeed"]),
        },
        ranks=2,
        rounds=rounds,
        machine=machine,
    )


if __name__ == "__main__":
    main()
