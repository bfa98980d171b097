"""The rendered script, started by hand, through deepspeed's runner, pdsh, ssh and sshd, to two hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsforge.ops.bundles import bundle_of
from dsforge.recipe.load import load_recipe
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import ExitRecord, WorldReport
from tests.cluster.hosts import Cluster
from tests.cluster.runs import TWO_NODES, records_of, trainer_of
from tests.support.recipes import ROOT, write

pytestmark = pytest.mark.cluster

PATIENCE_SECONDS = 240.0
ODD = "a 'b' \"c\", $(touch PWNED) `id` \\ %n%h%% ;"
SECRET = "s3cret 'x' $y"


def _arguments_of_all_processes() -> bytes:
    found = b""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found += (process / "cmdline").read_bytes()
        except OSError:
            continue
    return found


def test_two_hosts_train(cluster: Cluster, tmp_path: Path):
    (tmp_path / "hosts").write_text("".join(f"{host.address} slots=1\n" for host in cluster.workers))
    environment = json.dumps({"GLOO_SOCKET_IFNAME": "eth0", "ODD": ODD})
    text = TWO_NODES.replace("gpu: cpu", "gpu: cpu, hostfile: hosts")
    recipe = write(tmp_path, f"{text}launch: {{env: {environment}, env_from: [HF_TOKEN]}}\n")
    bundle_of(load_recipe(recipe)).write(tmp_path / "bundle")
    environ = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": os.environ["HOME"],
        "PYTHONPATH": str(ROOT),
        "PDSH_SSH_ARGS_APPEND": cluster.ssh_options,
        "HF_TOKEN": SECRET,
    }
    with (tmp_path / "log").open("wb") as log:
        words = cluster.head.inside("bash", str(tmp_path / "bundle" / "launch.sh"))
        process = subprocess.Popen(words, cwd=tmp_path, env=environ, stdout=log, stderr=log)
    reports: dict[int, WorldReport] = {}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(reports) < 2:
        assert process.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < deadline, (tmp_path / "log").read_text()
        time.sleep(0.1)
        reports = {line.rank: line for line in records_of(tmp_path) if isinstance(line, WorldReport)}
    # The trainers are still loading their libraries.
    for rank in reports:
        trainer = trainer_of(str(tmp_path / "dsforge-run" / "attempt-1"), rank)
        seen = (trainer / "environ").read_bytes().split(b"\0")
        assert f"ODD={ODD}".encode() in seen
        assert f"HF_TOKEN={SECRET}".encode() in seen
    assert b"s3cret" not in _arguments_of_all_processes()
    assert process.wait(PATIENCE_SECONDS) == 0, (tmp_path / "log").read_text()
    assert {rank: (r.node, r.local_rank) for rank, r in reports.items()} == {0: (0, 0), 1: (1, 0)}
    assert {r.rank: r.code for r in records_of(tmp_path) if isinstance(r, ExitRecord)} == {0: 0, 1: 0}
    metrics = AttemptDir(tmp_path / "dsforge-run" / "attempt-1").metrics.read_text().splitlines()
    assert [json.loads(line)["step"] for line in metrics] == [1, 2, 3, 4]
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size < 10**6]
    assert not [path for path in written if b"s3cret" in path.read_bytes()]
    assert not list(tmp_path.rglob("PWNED"))
