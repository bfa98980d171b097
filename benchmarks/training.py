"""What a trainer costs on one rank, beside its peers: the same shape, data, batch and threads.

Run: make bench. `forge` and `fsdp` go through `dsforge launch`; `plain torch` is peers/plain_torch.py;
`deepspeed` is peers/bare_deepspeed.py under the real launcher with the rendered ds_config.json; `fully_shard`
is peers/bare_fully_shard.py under torchrun. A step's time is the time
between two lines that a contestant wrote: all of the step, logging included. The contestants take turns.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import measure

from dsforge.data.prepare import builtin_corpus
from dsforge.launch.machine import free_port
from dsforge.train.reader import read_index

ROUNDS = 3
THREADS = "1"
CHANGES: dict[str, tuple[str, ...]] = {"forge": (), "fsdp": ("parallel.zero=3",)}
"""Trainers that are measured, and what each changes of the recipe."""
HERE = Path(__file__).resolve().parent
RECIPE = HERE / "training.yaml"
ENVIRON = measure.environment(OMP_NUM_THREADS=THREADS, DS_ACCELERATOR="cpu")


class Contest:
    """One trainer and precision: the rendered bundle, and every contestant's tokens a second."""

    def __init__(self, trainer: str, precision: str, folder: Path) -> None:
        self.folder = folder
        self.trainer = trainer
        self.changes = [f"train.precision={precision}", f"trainer={trainer}", *CHANGES[trainer]]
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

    def ours(self) -> float:
        """Train through `dsforge launch`."""
        words = ["launch", RECIPE, *self.changes, "--runs", self.folder / "runs", "--json"]
        told = json.loads(measure.run([measure.BIN / "dsforge", *words], environ=ENVIRON))
        return self._speed(self.trainer, measure.read_steps(Path(told["run"], "attempt-1", "metrics.jsonl")))

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

    def bare_fully_shard(self) -> float:
        """Train Hugging Face's model with PyTorch's `fully_shard` alone."""
        launcher = [str(measure.BIN / "torchrun"), "--nproc_per_node", "1", "--master_port", str(free_port())]
        return self._peer("fully_shard", [*launcher, str(HERE / "peers" / "bare_fully_shard.py")])

    def peers(self) -> dict[str, Callable[[], float]]:
        """Return who trains the same without dsforge."""
        if self.trainer == "fsdp":
            return {"fully_shard": self.bare_fully_shard}
        return {"plain torch": self.plain_torch, "deepspeed": self.bare_deepspeed}


def compare(trainer: str, precision: str, rounds: int) -> None:
    """Measure one trainer in one precision and print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        contest = Contest(trainer, precision, Path(folder))
        machine = measure.machine()
        peers = contest.peers()
        speeds = measure.in_turn({trainer: contest.ours, **peers}, rounds)
        ratios = {
            f"{trainer}_over_{peer.replace(' ', '_')}": measure.ratio(speeds[trainer], speeds[peer])
            for peer in peers
        }
        measure.report(
            f"training {trainer} {precision}",
            {"tokens_per_second": measure.medians(speeds, 0), **ratios},
            last_loss=contest.last_losses,
            parameters=contest.plan["parameters"]["total"],
            zero=contest.plan["layout"]["zero"],
            batch=contest.plan["batch"],
            threads=int(THREADS),
            rounds=rounds,
            machine=machine,
        )


def main() -> None:
    """Compare each trainer in each precision that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trainer", choices=tuple(CHANGES), action="append")
    parser.add_argument("--precision", choices=("fp32", "bf16"), action="append")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    choice = parser.parse_args()
    for trainer in choice.trainer or CHANGES:
        for precision in choice.precision or ("fp32", "bf16"):
            compare(trainer, precision, choice.rounds)


if __name__ == "__main__":
    main()
