"""What `dsforge launch` costs beside the same bundle started by hand: bare `deepspeed` with its command line.

Run: make bench. The peer is the rendered launch.sh: the deepspeed command and the variables it needs.
Start: from starting the program to the first step on record. Step: the time between two lines of metrics.
With --hosts, as root: a rank on each of two hosts in namespaces of their own, over pdsh and ssh; what dsforge
asked the hosts before is not in its start, and told by itself.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
OVER_PDSH = (
    *("cluster.nodes=2", "cluster.gpus_per_node=1", "launch.launcher=pdsh"),
    "launch.env={GLOO_SOCKET_IFNAME: eth0}",
)
_ASKED = re.compile(r"hosts are ready, asked in ([0-9.]+) s")


class Contest:
    """Both ways to start one bundle; each call gives the seconds to the first step, and keeps a step's."""

    def __init__(
        self,
        folder: Path,
        changes: tuple[str, ...],
        environ: dict[str, str],
        inside: Callable[..., list[str]] = lambda *words: [*words],
    ) -> None:
        """Take the recipe's changes, and what makes a command one that runs on the first host."""
        self.folder = folder
        self.changes = changes
        self.inside = inside
        self.environ = measure.environment(OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu", **environ)
        render = [measure.BIN / "dsforge", "render", RECIPE, *changes, "--out", folder / "bundle"]
        measure.run(render, environ=self.environ)
        plan = json.loads((folder / "bundle" / "plan.json").read_text("utf-8"))
        self.corpus = str(builtin_corpus(plan["data"]["builtin_vocab"]))
        self.step_seconds: dict[str, list[float]] = {"dsforge launch": [], "deepspeed": []}
        self.asked_seconds: list[float] = []
        self.numbers = itertools.count(1)

    def _run(self, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.inside(*map(str, words)),
            cwd=self.folder,
            env={**self.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            sys.exit(f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def _started(self, name: str, began: float, metrics: Path) -> float:
        first = json.loads(metrics.read_text("utf-8").partition("\n")[0])
        self.step_seconds[name].append(measure.read_steps(metrics).seconds)
        return first["time"] - began

    def dsforge(self) -> float:
        """Start with the supervisor."""
        words = ("launch", RECIPE, *self.changes, "--runs", self.folder / "runs", "--json")
        began = time.time()
        done = self._run(measure.BIN / "dsforge", *words)
        metrics = Path(json.loads(done.stdout)["run"], "attempt-1", "metrics.jsonl")
        seconds = self._started("dsforge launch", began, metrics)
        asked = _ASKED.search(done.stderr)
        self.asked_seconds.append(float(asked[1]) if asked else 0.0)
        return seconds - self.asked_seconds[-1]

    def deepspeed(self) -> float:
        """Start by hand."""
        attempt = self.folder / f"by-hand-{next(self.numbers)}"
        began = time.time()
        self._run(
            "bash",
            self.folder / "bundle" / "launch.sh",
            DSFORGE_ATTEMPT_DIR=str(attempt),
            DSFORGE_CORPUS=self.corpus,
            MASTER_PORT=str(free_port()),
        )
        return self._started("deepspeed", began, attempt / "metrics.jsonl")


@contextmanager
def contest(folder: Path, *, on_hosts: bool) -> Iterator[Contest]:
    """Yield the contest on this machine, or on two hosts that are made for it."""
    if not on_hosts:
        yield Contest(folder, CHANGES, {})
        return
    from tests.cluster.hosts import Cluster

    (folder / "cluster").mkdir()
    cluster = Cluster(folder / "cluster")
    try:
        cluster.up(workers=2)
        hosts = folder / "hosts"
        hosts.write_text("".join(f"{host.address} slots=1\n" for host in cluster.workers), "utf-8")
        changes = (*CHANGES, *OVER_PDSH, f"cluster.hostfile={os.path.relpath(hosts, RECIPE.parent)}")
        ssh = {"PDSH_SSH_ARGS_APPEND": cluster.ssh_options}
        yield Contest(folder, changes, ssh, cluster.head.inside)
    finally:
        cluster.down()


def main() -> None:
    """Let both start in turn and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--hosts", action="store_true", help="two hosts over pdsh instead of this machine")
    asked = parser.parse_args()
    machine = measure.machine()
    with tempfile.TemporaryDirectory() as folder, contest(Path(folder), on_hosts=asked.hosts) as both:
        starts = measure.in_turn({"dsforge launch": both.dsforge, "deepspeed": both.deepspeed}, asked.rounds)
    ours, theirs = starts["dsforge launch"], starts["deepspeed"]
    added = statistics.median(a - b for a, b in zip(ours, theirs, strict=True))
    steps = both.step_seconds
    measure.report(
        "launching",
        {
            "seconds_to_first_step": measure.medians(starts, 2),
            "seconds_added": round(added, 2),
            "seconds_that_hosts_were_asked": round(statistics.median(both.asked_seconds), 2),
            "step_seconds": measure.medians(steps, 5),
            "step_ratio": measure.ratio(steps["dsforge launch"], steps["deepspeed"]),
        },
        hosts=2 if asked.hosts else 1,
        ranks=2,
        rounds=asked.rounds,
        machine=machine,
    )


if __name__ == "__main__":
    main()
