"""What forge costs on one rank, beside its peers: the same shape, data, batch and threads.

Run: make bench. `forge` goes through `dsforge launch`; `plain torch` is peers/plain_torch.py; `deepspeed` is
peers/bare_deepspeed.py under the real launcher with the rendered ds_config.json. A step's time is the time
between two lines that a contestant wrote: all of the step, logging included. The contestants take turns.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import measure

from dsforge.data.prepare import builtin_corpus
from dsforge.launch.machine import free_port
from dsforge.train.reader import read_index

ROUNDS = 3
THREADS = "1"
HERE = Path(__file__).resolve().parent
RECIPE = HERE / "training.yaml"
ENVIRON = measure.environment(OMP_NUM_THREADS=THREADS, DS_ACCELERATOR="cpu")


class Contest:
    """One precision: the rendered bundle, and every contestant's tokens a second."""

    def __init__(self, precision: str, folder: Path) -> None:
        self.folder = folder
        self.changes = [f"train.precision={precision}"]
        measure.run(
            [measure.BIN / "dsforge", "render", RECIPE, *self.changes, "--out", folder / "bundle"],
            environ=ENVIRON,
        )
        self.plan = json.loads((folder / "bundle" / "plan.json").read_text("utf-8"))
        self.corpus = builtin_corpus(self.plan["data"]["builtin_vocab"])
        self.last_losses: dict[str, float] = {}
        self.runs = 0

    def _speed(self, name: str, steps: measure.Steps) -> float:
        self.last_losses[name] = round(steps.losses[-1], 2)
        batch = self.plan["batch"]
        return batch["global_size"] * batch["seq_len"] / steps.seconds

    def forge(self) -> float:
        """Train through `dsforge launch`."""
        words = ["launch", RECIPE, *self.changes, "--runs", self.folder / "runs", "--json"]
        told = json.loads(measure.run([measure.BIN / "dsforge", *words], environ=ENVIRON))
        return self._speed("forge", measure.read_steps(Path(told["run"], "attempt-1", "metrics.jsonl")))

    def _peer(self, name: str, start: list[str], *more: str | Path) -> float:
        self.runs += 1
        out = self.folder / f"steps-{self.runs}.jsonl"
        index = read_index(Path(f"{self.corpus}.idx"))
        given = ["--plan", self.folder / "bundle" / "plan.json", "--tokens", f"{self.corpus}.bin"]
        words = [*start, *given, "--token-type", index.dtype.str, "--out", out, *more]
        measure.run(words, environ=ENVIRON)
        return self._speed(name, measure.read_steps(out))

    def plain_torch(self) -> float:
        """Train with PyTorch alone."""
        return self._peer("plain torch", [sys.executable, str(HERE / "peers" / "plain_torch.py")])

    def bare_deepspeed(self) -> float:
        """Train with DeepSpeed alone."""
        launcher = [str(measure.BIN / "deepspeed"), "--num_gpus", "1", "--master_port", str(free_port())]
        script = str(HERE / "peers" / "bare_deepspeed.py")
        config = self.folder / "bundle" / "ds_config.json"
        return self._peer("deepspeed", [*launcher, script], "--ds-config", config)


def compare(precision: str, rounds: int) -> None:
    """Measure one precision and print its figures."""
    with tempfile.TemporaryDirectory() as folder:
        contest = Contest(precision, Path(folder))
        machine = measure.machine()
        speeds = measure.in_turn(
            {
                "forge": contest.forge,
                "plain torch": contest.plain_torch,
                "deepspeed": contest.bare_deepspeed,
            },
            rounds,
        )
        measure.report(
            f"training {precision}",
            {
                "tokens_per_second": measure.medians(speeds, 0),
                "forge_over_plain_torch": measure.ratio(speeds["forge"], speeds["plain torch"]),
                "forge_over_deepspeed": measure.ratio(speeds["forge"], speeds["deepspeed"]),
            },
            last_loss=contest.last_losses,
            parameters=contest.plan["parameters"]["total"],
            zero=contest.plan["layout"]["zero"],
            batch=contest.plan["batch"],
            threads=int(THREADS),
            rounds=rounds,
            machine=machine,
        )


def main() -> None:
    """Compare in each precision that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--precision", choices=("fp32", "bf16"), action="append")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    choice = parser.parse_args()
    for precision in choice.precision or ("fp32", "bf16"):
        compare(precision, choice.rounds)


if __name__ == "__main__":
    main()
