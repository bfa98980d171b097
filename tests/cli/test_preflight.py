"""`dsforge preflight` where ssh is a stand-in: it runs commands here, and refuses one host."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsforge.launch.launchers import LAUNCHERS
from dsforge.launch.launchers.base import Launcher
from dsforge.rank.interfaces import interfaces
from tests.launch_support.bundles import REPOSITORY
from tests.support.recipes import SMALL, write

Cli = Callable[..., Any]
_SSH = """#!/bin/sh
for word; do host=$command; command=$word; done
case $host in
  gone*) echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255 ;;
esac
exec sh -c "$command"
"""
HERE = socket.gethostname()
"""127.0.0.2 as one number: a name that leads to this machine, wherever these tests run."""
TWO = ("cluster.nodes=2", "cluster.gpus_per_node=4", "cluster.hostfile=hosts", "launch.launcher=ssh")
OUTWARD = [one.name for one in interfaces() if one.name != "lo" and one.addresses]
needs_a_network = pytest.mark.skipif(not OUTWARD, reason="this machine has no network")


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(_SSH)
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.delenv("MASTER_PORT", raising=False)
    (tmp_path / "hosts").write_text(f"{HERE} slots=4\ngone-1 slots=4\n")
    launch = f"launch: {{env: {{GLOO_SOCKET_IFNAME: {OUTWARD[0]}}}}}\n" if OUTWARD else ""
    return write(tmp_path, SMALL.replace("dp: 2", "dp: auto") + launch)


def test_this_machine_alone(cli: Cli, tmp_path: Path):
    path = write(tmp_path, SMALL)
    shown = cli("preflight", path, "--quick", "--runs", tmp_path / "runs")
    assert shown.code == 0, shown.err
    assert shown.out.splitlines()[-1] == "1 host: 0 errors, 0 warnings; ready to launch"
    assert [one.name for one in tmp_path.iterdir()] == ["recipe.yaml"]


@pytest.mark.parametrize("command", ["preflight", "launch"])
@pytest.mark.parametrize(
    ("hosts", "ended", "code", "told"),
    [
        (f"{HERE} slots=4\ngone-1 slots=2\n", 1, "DSF041", "2 slots, the recipe has cluster.gpus_per_node 4"),
        (f"{HERE} slots=4\n{HERE} slots=4\n", 2, "DSF040", f"host `{HERE}` stands twice, first in line 1"),
    ],
)
def test_hosts_that_are_not_the_planned_world_are_named(
    cli: Cli, recipe: Path, command: str, hosts: str, ended: int, code: str, told: str
):
    (recipe.parent / "hosts").write_text(hosts)
    shown = cli(command, recipe, *TWO, "--runs", recipe.parent / "runs", "--json")
    (first, *_) = shown.json["findings"]
    assert (shown.code, first["code"]) == (ended, code)
    assert first["message"].startswith(told)
    assert first["place"].get("host") == ("gone-1" if code == "DSF041" else None)
    assert not (recipe.parent / "runs").exists()


def test_where_nothing_is_compiled_it_says_so(cli: Cli, tmp_path: Path):
    path = write(tmp_path, SMALL)
    shown = cli("preflight", path, "--quick", "--build")
    assert shown.code == 0, shown.err
    assert "nothing is to be built: these ranks run no kernel" in shown.out
    (host,) = cli("preflight", path, "--quick", "--build", "--json").json["build"]["hosts"]
    assert (host["built"], host["failed"]) == ([], {})


def test_a_host_that_fails_is_told_and_nothing_is_launched(cli: Cli, recipe: Path, tmp_path: Path):
    told = cli("preflight", recipe, *TWO, "--quick", "--json")
    assert told.code == 1
    assert [(host["host"], host["answered"]) for host in told.json["hosts"]] == [
        (HERE, True),
        ("gone-1", False),
    ]
    launched = cli("launch", recipe, *TWO, "--runs", tmp_path / "runs")
    assert launched.code == 3
    assert "DSF251" in launched.err
    assert "host gone-1" in launched.err
    assert not (tmp_path / "runs").exists()


def test_of_many_hosts_with_one_fault_a_few_are_shown(cli: Cli, recipe: Path, tmp_path: Path):
    (tmp_path / "hosts").write_text("gone-[1-9] slots=4\n")
    shown = cli("preflight", recipe, *TWO, "cluster.nodes=9", "batch.global=36", "--quick")
    assert shown.code == 1
    assert shown.out.splitlines()[-1] == "9 hosts: 9 errors, 0 warnings; it would not run"
    assert shown.err.count("--> host gone-") == 3
    assert shown.err.count("; 6 more hosts likewise") == 1


def test_a_launcher_without_ssh_has_no_hosts_to_ask(cli: Cli, recipe: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(LAUNCHERS, "slurm", Launcher(runner="srun"))
    shown = cli("preflight", recipe, "launch.launcher=slurm", "--json")
    assert (shown.code, shown.json["error"]["code"]) == (1, "DSF278")


@needs_a_network
def test_without_the_hosts_that_fail_the_plan_is_made_anew(cli: Cli, recipe: Path):
    told = cli("preflight", recipe, *TWO, "--quick", "--json", "--exclude-failed")
    assert told.code == 0, told.err
    assert told.json["left_out"] == ["gone-1"]
    assert told.json["changes"] == ["cluster.nodes=1", "cluster.exclude=gone-1"]
    assert [host["host"] for host in told.json["hosts"]] == [HERE]
    # What was found stays told, and keeps nothing from starting any more.
    assert {one["severity"] for one in told.json["findings"]} == {"warning"}
    assert "DSF251" in {one["code"] for one in told.json["findings"]}
    plan = cli("plan", recipe, *TWO, *told.json["changes"], "--json").json
    assert (plan["layout"]["world_size"], plan["batch"]["global_size"]) == (4, 32)


@needs_a_network
def test_what_the_recipe_names_is_not_bent(cli: Cli, recipe: Path):
    told = cli("preflight", recipe, *TWO, "parallel.dp=2", "--quick", "--json", "--exclude-failed")
    assert told.code == 1
    assert told.json["error"]["code"] == "DSF277"
    assert told.json["error"]["message"].startswith("without gone-1 there is no plan for 1 nodes: ")


def test_where_all_fail_nothing_is_left_to_plan_for(cli: Cli, recipe: Path, tmp_path: Path):
    (tmp_path / "hosts").write_text("gone-1 slots=4\ngone-2 slots=4\n")
    shown = cli("preflight", recipe, *TWO, "--quick", "--exclude-failed")
    assert shown.code == 1
    assert shown.out.splitlines()[-1] == "2 hosts: 2 errors, 0 warnings; it would not run"
