"""`dsforge preflight` from one host onto two others: what is wrong with which, and nothing starts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.hosts import Cluster, Host
from tests.cluster.test_launch import environ_of, recipe_for

pytestmark = pytest.mark.cluster

PATIENCE_SECONDS = 120.0
_LISTENER = """
import socket, sys
server = socket.create_server(("", int(sys.argv[1])))
print("listening", flush=True)
server.accept()
"""


def dsforge(
    cluster: Cluster, recipe: Path, command: str, *words: str, **environ: str
) -> tuple[int, dict[str, Any]]:
    """Run a command on the cluster's first host; return its code and its JSON."""
    argv = (sys.executable, "-m", "dsforge.cli", command, str(recipe), "--json", *words)
    done = subprocess.run(
        cluster.head.inside(*argv, "--runs", str(recipe.parent / "runs")),
        cwd=recipe.parent,
        env={**environ_of(cluster), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def errors_of(told: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the errors by code and host."""
    errors = [one for one in told["findings"] if one["severity"] == "error"]
    return {(one["code"], one["place"]["host"]): one for one in errors}


@contextmanager
def mounted(host: Host, *words: str) -> Iterator[None]:
    """Mount something on one host alone, at the last of the words."""
    host.in_its_files("mount", *words)
    try:
        yield
    finally:
        host.in_its_files("umount", words[-1])


@contextmanager
def listening(host: Host, port: int) -> Iterator[None]:
    words = ["ip", "netns", "exec", host.name, sys.executable, "-c", _LISTENER, str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"listening\n"
        try:
            yield
        finally:
            program.kill()


@contextmanager
def no_way(host: Host, to: Host) -> Iterator[None]:
    route = ("unreachable", f"{to.address}/32")
    subprocess.run(["ip", "-n", host.name, "route", "add", *route], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "-n", host.name, "route", "del", *route], check=True)


def started_nothing(folder: Path) -> bool:
    return not [path.name for path in (folder / "runs").glob("*")]


def test_hosts_that_are_well_pass_and_sum_over_all(cluster: Cluster, tmp_path: Path):
    code, told = dsforge(cluster, recipe_for(cluster, tmp_path, launcher="ssh"), "preflight")
    assert (code, told["passed"], errors_of(told)) == (0, True, {})
    assert [host["name"] for host in told["hosts"]] == [host.name for host in cluster.workers]
    assert [host["address"] for host in told["hosts"]] == [host.address for host in cluster.workers]
    sums = told["all_reduce"]
    assert (sums["ranks"], sums["bytes"]) == (2, 2**22)
    # Of two ranks each sends half of the tensor twice.
    assert sums["bytes_per_second"] == pytest.approx(2**22 / sums["seconds"])
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"recipe.yaml", "hosts"}


def test_all_faults_are_told_at_once_each_with_its_host(cluster: Cluster, tmp_path: Path):
    first, second = cluster.workers
    recipe = recipe_for(cluster, tmp_path, launcher="pdsh")
    (tmp_path / "runs").mkdir()
    torch = next(path for path in metadata.files("torch") or () if path.name == "METADATA").locate()
    other = tmp_path / "METADATA"
    other.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.1.2\n")
    with ExitStack() as faults:
        faults.enter_context(mounted(second, "--bind", str(other), str(torch)))
        faults.enter_context(mounted(second, "-t", "tmpfs", "-o", "size=4k", "none", str(tmp_path / "runs")))
        faults.enter_context(no_way(second, first))
        faults.enter_context(listening(first, 29_871))
        code, told = dsforge(cluster, recipe, "preflight", "--quick", MASTER_PORT="29871")
    assert code == 1
    found = errors_of(told)
    runs = str(tmp_path / "runs")
    version = found["DSF257", second.address]
    assert version["message"] == f"it has torch 2.1.2, this host has {metadata.version('torch')}"
    assert version["hint"].endswith(f"-m pip install 'torch=={metadata.version('torch')}'`")
    assert found["DSF260", second.address]["message"].startswith(f"{runs} is another folder there")
    assert found["DSF263", second.address]["message"].startswith(f"{runs} has ")
    assert found["DSF270", first.address]["message"] == "port 29871, where the ranks would meet, is in use"
    assert "no route to host" in found["DSF269", second.address]["message"]
    # That nobody reaches it either is the same fault, and not another host's.
    assert {code for code, host in found if host == first.address} == {"DSF270"}
    assert started_nothing(tmp_path)
    assert [host["passed"] for host in told["hosts"]] == [False, False]


def test_a_host_without_a_way_to_the_first_is_named(cluster: Cluster, tmp_path: Path):
    first, second = cluster.workers
    recipe = recipe_for(cluster, tmp_path, launcher="ssh")
    with no_way(second, first), mounted(second, "-t", "tmpfs", "none", str(tmp_path)):
        code, told = dsforge(cluster, recipe, "launch")
    assert code == 3
    found = errors_of(told)
    assert found["DSF262", second.address]["message"] == f"{recipe} cannot be read there"
    missed = found["DSF269", second.address]
    assert missed["message"].startswith(f"it does not reach {first.address} ({first.address}), where the ran")
    assert missed["message"].endswith(": no route to host")
    assert started_nothing(tmp_path)


def test_hosts_that_do_not_answer_and_one_under_two_names(cluster: Cluster, tmp_path: Path):
    worker = cluster.workers[0]
    missing = f"{worker.address.rpartition('.')[0]}.250"
    recipe = recipe_for(cluster, tmp_path, launcher="ssh")
    names = (worker.address, "twin", cluster.head.address, missing, "nowhere.invalid")
    (tmp_path / "hosts").write_text("".join(f"{name} slots=1\n" for name in names))
    config = tmp_path / "config"
    config.write_text(f"Host twin\n  HostName {worker.address}\n{(cluster.folder / 'config').read_text()}")
    changes = ("cluster.nodes=5", "parallel.dp=5", "batch.global=20")
    code, told = dsforge(cluster, recipe, "preflight", "--quick", *changes, DSFORGE_SSH_ARGS=f"-F {config}")
    assert code == 1
    found = errors_of(told)
    assert found["DSF256", "twin"]["message"].startswith(f"{worker.address} and twin are one host")
    assert "nothing listens for ssh there" in found["DSF251", cluster.head.address]["message"]
    assert "No route to host" in found["DSF251", missing]["message"]
    assert ("DSF250", "nowhere.invalid") in found
    assert [host["answered"] for host in told["hosts"]] == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("chosen", "code", "said"),
    [
        (None, "DSF267", "would give 127.0.0.1 as their address"),
        ("lo", "DSF267", "GLOO_SOCKET_IFNAME=lo is its loopback"),
        ("eth7", "DSF266", "GLOO_SOCKET_IFNAME=eth7 names eth7, which it does not have; it has lo, eth0"),
    ],
)
def test_the_wrong_interface_is_found_before_a_rank_starts(
    cluster: Cluster, tmp_path: Path, chosen: str | None, code: str, said: str
):
    recipe = recipe_for(cluster, tmp_path, launcher="ssh")
    change = f"launch.env={json.dumps({'GLOO_SOCKET_IFNAME': chosen} if chosen else {})}"
    ended, told = dsforge(cluster, recipe, "launch", change)
    assert ended == 3
    found = errors_of(told)
    assert set(found) == {(code, host.address) for host in cluster.workers}
    for one in found.values():
        assert said in one["message"]
        assert one["hint"] == "launch.env.GLOO_SOCKET_IFNAME=eth0"
    assert started_nothing(tmp_path)
