"""`dsforge hostfile`: from the lists of jobs, and what a file would be to the engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.recipes import SMALL, write

Cli = Callable[..., Any]
JOB = ("SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_GPUS_ON_NODE", "SLURM_NTASKS_PER_NODE", "PBS_NODEFILE")


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in JOB:
        monkeypatch.delenv(name, raising=False)


def test_a_slurm_job_becomes_a_hostfile_in_its_order(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu-[08-10,12],cpu1,rack[2,1]n[1-2]")
    monkeypatch.setenv("SLURM_NODELIST", "other")
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "1")
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "8")
    names = ["gpu-08", "gpu-09", "gpu-10", "gpu-12", "cpu1", "rack2n1", "rack2n2", "rack1n1", "rack1n2"]
    shown = cli("hostfile", "from-slurm")
    assert (shown.code, shown.out) == (0, "".join(f"{name} slots=8\n" for name in names))
    assert shown.err == "9 hosts, 72 slots; slots from SLURM_GPUS_ON_NODE\n"
    told = cli("hostfile", "from-slurm", "a[1-2]", "--slots", 3, "--json").json
    assert told["hosts"] == [{"host": "a1", "slots": 3}, {"host": "a2", "slots": 3}]


@pytest.mark.parametrize(
    ("variables", "arguments", "code", "message"),
    [
        ({}, [], 3, "this is no Slurm job: SLURM_JOB_NODELIST is not set"),
        ({}, ["a"], 2, "neither SLURM_GPUS_ON_NODE nor SLURM_NTASKS_PER_NODE is set"),
        (
            {"SLURM_NODELIST": "n[1-2", "SLURM_GPUS_ON_NODE": "2"},
            [],
            2,
            "SLURM_NODELIST: the brackets of `n[1-2`",
        ),
        ({"SLURM_GPUS_ON_NODE": "4(x2)"}, ["a"], 2, "SLURM_GPUS_ON_NODE is `4(x2)`, no count"),
        ({}, ["a,b,A", "--slots", "1"], 2, "the node list names host `A` twice"),
        ({}, ["a,,b", "--slots", "1"], 2, "`` is not a host name"),
        ({}, ["a,-b", "--slots", "1"], 2, ""),
    ],
)
def test_a_list_that_gives_no_hostfile(
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    arguments: list[str],
    code: int,
    message: str,
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    shown = cli("hostfile", "from-slurm", *arguments)
    assert (shown.code, shown.out) == (code, "")
    assert message in shown.err
    assert "hint: " in shown.err


def test_a_pbs_job_becomes_a_hostfile(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    nodes = tmp_path / "nodes"
    nodes.write_text("b.example\na\nb.example\na\nB.example\n")
    monkeypatch.setenv("PBS_NODEFILE", str(nodes))
    assert cli("hostfile", "from-pbs").out == "b.example slots=3\na slots=2\n"
    assert cli("hostfile", "from-pbs", "--slots", 8).out == "b.example slots=8\na slots=8\n"
    nodes.write_text("a\nme@b\n")
    shown = cli("hostfile", "from-pbs")
    assert (shown.code, shown.out) == (2, "")
    assert f"{nodes}:2:1" in shown.err
    nodes.unlink()
    assert cli("hostfile", "from-pbs").code == 3
    monkeypatch.delenv("PBS_NODEFILE")
    assert cli("hostfile", "from-pbs").code == 3


@pytest.mark.parametrize(
    ("text", "code", "lines"),
    [
        (
            "a slots=4\r\n# c\r\n\r\nb slots=4 # c\r\n",
            0,
            ["H: 2 hosts, 8 slots", "deepspeed 0.19.8 reads the same"],
        ),
        (
            "n[1-2] slots=4\n",
            0,
            [
                "H: 2 hosts, 8 slots",
                "deepspeed 0.19.8, given this very file: 1 host, 4 slots",
                "  n[1-2] slots=4",
            ],
        ),
        (
            "a slots=8x\nb slots=0\n",
            1,
            [
                "H: refused",
                "deepspeed 0.19.8, given this very file: 2 hosts, 8 slots",
                *("  a slots=8", "  b slots=0"),
            ],
        ),
        ("a slots = 4\n", 1, ["H: refused", "deepspeed 0.19.8, given this very file: refused"]),
    ],
)
def test_a_file_is_checked_and_what_deepspeed_reads_is_told(
    cli: Cli, tmp_path: Path, text: str, code: int, lines: list[str]
):
    file = tmp_path / "hosts"
    file.write_bytes(text.encode())
    shown = cli("hostfile", "check", file)
    assert (shown.code, shown.out.replace(str(file), "H").splitlines()) == (code, lines)
    told = cli("hostfile", "check", file, "--json").json
    assert (told["ok"], told["hosts"] is None, bool(told["findings"])) == (code == 0, code == 1, code == 1)
    assert told["engine"]["same"] == ("same" in lines[-1])
    for number, found in enumerate(told["findings"], start=1):
        assert (found["code"], found["place"]["line"]) == ("DSF040", number)


def test_no_file_is_an_error(cli: Cli, tmp_path: Path):
    shown = cli("hostfile", "check", tmp_path / "none")
    assert (shown.code, shown.out) == (2, "")
    assert "error[DSF044]" in shown.err


def test_local_starts_one_node_here_and_never_less_than_the_plan(cli: Cli, tmp_path: Path):
    (tmp_path / "hosts").write_text("far1 slots=8\nfar2 slots=8\n")
    chosen = "gpu: cpu, hostfile: hosts, include: far2, interface: ens3"
    text = SMALL.replace("gpu: cpu", chosen) + "launch: {launcher: torchrun, rendezvous: c10d}\n"
    recipe = write(tmp_path, text)
    there = cli("launch", recipe, "--dry-run", "--json", "--runs", tmp_path).json
    here = cli("launch", recipe, "--dry-run", "--json", "--local", "--runs", tmp_path).json
    assert there["files"]["hostfile"] == "far2 slots=8\n"
    assert [host["host"] for host in there["hosts"]] == ["far2"]
    assert there["hosts"][0]["environment"]["GLOO_SOCKET_IFNAME"] == "ens3"
    assert here["files"]["hostfile"] == "localhost slots=8\n"
    assert [host["host"] for host in here["hosts"]] == ["localhost"]
    assert "GLOO_SOCKET_IFNAME" not in here["hosts"][0]["environment"]
    recipe = write(
        tmp_path,
        text.replace("nodes: 1", "nodes: 2").replace(", include: far2", "").replace("dp: 2", "dp: 4"),
    )
    refused = cli("launch", recipe, "--dry-run", "--json", "--local", "--runs", tmp_path)
    assert refused.code == 1
    assert refused.json["error"]["code"] == "DSF155"
    assert "the recipe has 2 nodes" in refused.json["error"]["message"]
