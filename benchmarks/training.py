"""What a trainer costs on one rank, beside its peers: the same shape, data, batch and threads.

Run: make bench. Trainers go through `dsforge launch`. Their peers: `plain torch` is peers/plain_torch.py;
`deepspeed` is peers/bare_deepspeed.py and `hugging face` peers/bare_hugging_face.py, each under the real
launcher with the rendered ds_config.json; `fully_shard` is peers/bare_fully_shard.py under torchrun. The
contestants take turns. Speed is by the time between two lines that a contestant wrote: all of a step, logging
included. Beside it stands what all its processes compute a step, which others on the machine change less: a
long run's CPU time less a short one's.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import measure

from dsforge.data.prepare import builtin_corpus
from dsforge.launch.machine import free_port
from dsforge.train.reader import read_index

ROUNDS = 3
THREADS = "1"
SHORT, LONG = 4, 20
"""Steps of the two runs."""
PEERS = {
    "forge": ("plain torch", "deepspeed"),
    "transformers": ("hugging face",),
    "fsdp": ("fully_shard",),
}
"""Trainers that are measured, and who trains the same without dsforge."""
CHANGES: dict[str, tuple[str, ...]] = {"fsdp": ("parallel.zero=3",)}
"""What a trainer changes of the recipe."""
HERE = Path(__file__).resolve().parent
RECIPE = HERE / "training.yaml"
ENVIRON = measure.environment(OMP_NUM_THREADS=THREADS, DS_ACCELERATOR="cpu")


@dataclass(frozen=True)
class Figures:
    """Of one contestant in one round."""

    tokens_per_second: float
    cpu_seconds: float
    """A step's, of all processes."""


class Contest:
    """One trainer and precision: a bundle for each length, and the means to run every contestant."""

    def __init__(self, trainer: str, precision: str, folder: Path) -> None:
        self.folder = folder
        self.trainer = trainer
        self.changes = [f"train.precision={precision}", f"trainer={trainer}", *CHANGES.get(trainer, ())]
        for steps in (SHORT, LONG):
            bundle = self._bundle(steps)
            words = ["render", RECIPE, *self.changes, f"train.steps={steps}", "--out", bundle]
            measure.run([measure.BIN / "dsforge", *words], environ=ENVIRON)
        self.plan = json.loads((self._bundle(LONG) / "plan.json").read_text("utf-8"))
        self.corpus = builtin_corpus(self.plan["data"]["builtin_vocab"])
        self.last_losses: dict[str, float] = {}
        self.runs = 0

    def _bundle(self, steps: int) -> Path:
        return self.folder / f"bundle-{steps}"

    def _ours(self, steps: int) -> Path:
        words = [
            "launch",
            RECIPE,
            *self.changes,
            f"train.steps={steps}",
            "--runs",
            self.folder / "runs",
            "--json",
        ]
        told = json.loads(measure.run([measure.BIN / "dsforge", *words], environ=ENVIRON))
        return Path(told["run"], "attempt-1", "metrics.jsonl")

    def _peer(self, name: str, steps: int) -> Path:
        self.runs += 1
        out = self.folder / f"steps-{self.runs}.jsonl"
        port = str(free_port())
        deepspeed = [str(measure.BIN / "deepspeed"), "--num_gpus", "1", "--master_port", port]
        torchrun = [str(measure.BIN / "torchrun"), "--nproc_per_node", "1", "--master_port", port]
        start, script = {
            "plain torch": ([sys.executable], "plain_torch.py"),
            "deepspeed": (deepspeed, "bare_deepspeed.py"),
            "hugging face": (deepspeed, "bare_hugging_face.py"),
            "fully_shard": (torchrun, "bare_fully_shard.py"),
        }[name]
        bundle = self._bundle(steps)
        given = ["--plan", bundle / "plan.json", "--tokens", f"{self.corpus}.bin", "--out", out]
        given += ["--token-type", read_index(Path(f"{self.corpus}.idx")).dtype.str]
        given += ["--ds-config", bundle / "ds_config.json"]
        measure.run([*start, HERE / "peers" / script, *given], environ=ENVIRON)
        return out

    def _figures(self, name: str, run: Callable[[int], Path]) -> Figures:
        lines: dict[int, Path] = {}

        def take(steps: int) -> float:
            return measure.cpu_seconds(lambda: lines.update({steps: run(steps)}))

        cpu_seconds = (take(LONG) - take(SHORT)) / (LONG - SHORT)
        steps = measure.read_steps(lines[LONG])
        self.last_losses[name] = round(steps.losses[-1], 2)
        batch = self.plan["batch"]
        return Figures(batch["global_size"] * batch["seq_len"] / steps.seconds, cpu_seconds)

    def contestants(self) -> dict[str, Callable[[], Figures]]:
        """Return who is measured: the trainer first."""

        def peer(name: str) -> Callable[[], Figures]:
            return lambda: self._figures(name, lambda steps: self._peer(name, steps))

        ours = {self.trainer: lambda: self._figures(self.trainer, self._ours)}
        return ours | {name: peer(name) for name in PEERS[self.trainer]}


def compare(trainer: str, precision: str, rounds: int) -> None:
    """Measure one trainer in one precision and print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        contest = Contest(trainer, precision, Path(folder))
        machine = measure.machine()
        found = measure.in_turn(contest.contestants(), rounds)
    speeds = {name: [one.tokens_per_second for one in figures] for name, figures in found.items()}
    costs = {name: [one.cpu_seconds for one in figures] for name, figures in found.items()}
    ratios = {
        f"{trainer}_over_{peer.replace(' ', '_')}": {
            "tokens_per_second": measure.spread(speeds[trainer], speeds[peer]),
            # The other way round: twice the speed is half the time.
            "tokens_per_cpu_second": measure.spread(costs[peer], costs[trainer]),
        }
        for peer in PEERS[trainer]
    }
    measure.report(
        f"training {trainer} {precision}",
        {
            "tokens_per_second": measure.medians(speeds, 0),
            "cpu_seconds_a_step": measure.medians(costs, 3),
            **ratios,
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
    """Compare each trainer in each precision that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trainer", choices=tuple(PEERS), action="append")
    parser.add_argument("--precision", choices=("fp32", "bf16"), action="append")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    choice = parser.parse_args()
    for trainer in choice.trainer or PEERS:
        for precision in choice.precision or ("fp32", "bf16"):
            compare(trainer, precision, choice.rounds)


if __name__ == "__main__":
    main()
