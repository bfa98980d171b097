"""The rendered batch script under a real Slurm of two nodes, one of them with process ids of its own."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from dsforge.ops.bundles import bundle_of
from dsforge.recipe.load import load_recipe
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import ExitRecord, WorldReport
from tests.cluster.conftest import Slurm
from tests.cluster.runs import TWO_NODES, records_of, trainer_of
from tests.launch_support.bundles import TRAINER
from tests.support.recipes import write

pytestmark = pytest.mark.cluster

PATIENCE_SECONDS = 240.0
SECRET = "a 'b' $c, d"
LAUNCH = """launch:
  launcher: slurm
  stop_timeout: 1m
  slurm: {partition: train, time: 10m, notice: 1m, extra: [--exclusive]}
  env: {GLOO_SOCKET_IFNAME: lo, ODD: "a 'b', $HOME;"}
  env_from: [HF_TOKEN]
"""


def _bundle(folder: Path, text: str = TWO_NODES + LAUNCH) -> Path:
    bundle_of(load_recipe(write(folder, text))).write(folder / "bundle")
    return folder / "bundle" / "launch.sh"


def _submit(slurm: Slurm, folder: Path, *words: object) -> str:
    slurm.environ["HF_TOKEN"] = SECRET
    said = slurm.run(*words, cwd=folder)
    number = re.search(r"Submitted batch job (\d+)", said)
    assert number, said
    return number[1]


def _wait(slurm: Slurm, job: str, folder: Path, ready) -> dict[str, str]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not ready(slurm.job(job)):
        assert time.monotonic() < deadline, (folder / f"slurm-{job}.out").read_text()
        time.sleep(0.5)
    return slurm.job(job)


def test_slurm_takes_the_script(slurm: Slurm, tmp_path: Path):
    assert "to start at" in slurm.run("sbatch", "--test-only", _bundle(tmp_path), cwd=tmp_path)


def test_two_nodes_train(slurm: Slurm, tmp_path: Path):
    """Submitted by the script itself; the ranks stand where the plan puts them and every one ends well."""
    job = _submit(slurm, tmp_path, "bash", _bundle(tmp_path))
    ended = _wait(slurm, job, tmp_path, lambda seen: seen["JobState"] in ("COMPLETED", "FAILED"))
    assert ended["JobState"] == "COMPLETED", (tmp_path / f"slurm-{job}.out").read_text()
    records = records_of(tmp_path)
    placed = {r.rank: (r.node, r.local_rank, r.world_size) for r in records if isinstance(r, WorldReport)}
    assert placed == {0: (0, 0, 2), 1: (1, 0, 2)}
    assert {r.rank: r.code for r in records if isinstance(r, ExitRecord)} == {0: 0, 1: 0}
    metrics = AttemptDir(tmp_path / "dsforge-run" / "attempt-1").metrics.read_text().splitlines()
    assert [json.loads(line)["step"] for line in metrics] == [1, 2, 3, 4]


def test_out_of_time_means_told_to_end_and_queued_again(slurm: Slurm, tmp_path: Path):
    """With a trainer of a few lines in the real one's place, which never ends by itself."""
    script = _bundle(tmp_path, TWO_NODES + LAUNCH.replace("ODD:", 'TINY_STEPS: "0", ODD:'))
    script.write_text(script.read_text().replace("main dsforge.train.main", f"main {TRAINER}"))
    job = _submit(slurm, tmp_path, "sbatch", script)

    def trains(_seen: dict[str, str]) -> bool:
        return AttemptDir(tmp_path / "dsforge-run" / "attempt-1").metrics.exists()

    _wait(slurm, job, tmp_path, trains)
    for rank in (0, 1):
        trainer = trainer_of(f"{tmp_path}/dsforge-run/attempt-1", rank)
        environ = (trainer / "environ").read_bytes().split(b"\0")
        assert f"HF_TOKEN={SECRET}".encode() in environ
        assert b"ODD=a 'b', $HOME;" in environ
        assert b"MASTER_ADDR=127.0.0.1" in environ  # Slurm's address of node1, a name that does not resolve
        assert f"MASTER_PORT={15_000 + int(job)}".encode() in environ
        assert {b"WORLD_SIZE=2", f"RANK={rank}".encode(), b"LOCAL_RANK=0"} <= set(environ)
    slurm.run("scancel", "--batch", "--signal=USR1", job)  # what Slurm does a minute before the limit
    _wait(slurm, job, tmp_path, lambda seen: seen["Restarts"] == "1")
    slurm.run("scancel", job)
    stopped = {r.rank: r.signal for r in records_of(tmp_path) if isinstance(r, ExitRecord)}
    assert stopped == {0: 15, 1: 15}
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size < 10**6]
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]
