"""The batch script: what it asks Slurm for, and how it ends, with stand-ins for Slurm's programs."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from dsforge.plan.resolve import make_plan
from dsforge.render.bundle import render
from tests.support.recipes import loaded

PATIENCE_SECONDS = 60.0


def _script(*changes: dict[str, Any]) -> str:
    nodes = {"cluster": {"nodes": 2, "gpus_per_node": 4}, "launch": {"launcher": "slurm"}}
    return render(make_plan(loaded(nodes, *changes))).files["launch.sh"]


def _options(*changes: dict[str, Any]) -> list[str]:
    return re.findall(r"^#SBATCH (.*)$", _script(*changes), re.MULTILINE)


def test_a_spare_is_asked_for_and_the_job_outlives_a_lost_node():
    changes = {"cluster": {"spares": 3}, "launch": {"restarts": 1}}
    assert {"--nodes=5", "--no-kill"} <= set(_options(changes))
    assert 'dsforge_hosts=("${dsforge_hosts[@]:0:2}")' in _script(changes)
    assert "--no-kill" not in _options()


def test_by_default_it_asks_for_nodes_and_ranks_alone():
    options = [option for option in _options() if not option.startswith("--export=")]
    assert options == [
        "--job-name=small",
        "--nodes=2",
        "--ntasks-per-node=4",
        "--signal=B:USR1@300",
        "--open-mode=append",
        "--requeue",
    ]


def test_every_option_of_the_recipe_is_asked_for():
    slurm = {
        "partition": "a,b",
        "account": "lab-7",
        "qos": "high",
        "constraint": "[rack1|rack2]&ib",
        "time": "1d2h30m1s",
        "notice": 0,
        "requeue": False,
        "cpus_per_task": 6,
        "extra": ["--exclusive", "--mail-type=END,FAIL"],
    }
    changes = ({"model": "gpt2"}, {"cluster": {"gpu": "h100-sxm-80gb"}}, {"parallel": {"tp": 1, "dp": 4}})
    options = _options({"launch": {"slurm": slurm}}, *changes)
    assert {
        "--partition=a,b",
        "--account=lab-7",
        "--qos=high",
        "--constraint=[rack1|rack2]&ib",
        "--time=1-02:31:00",
        "--cpus-per-task=6",
        "--gpus-per-node=4",
        "--no-requeue",
        "--exclusive",
        "--mail-type=END,FAIL",
    } <= set(options)
    assert not [option for option in options if option.startswith("--signal")]
    script = _script({"launch": {"slurm": slurm}})
    assert "  --cpus-per-task=6\n" in script
    assert "scontrol requeue" not in script


def test_slurm_reads_every_option_before_the_first_command():
    lines = _script().splitlines()
    first_command = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert not [line for line in lines[first_command:] if line.startswith("#SBATCH")]


def _program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/bash\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("number", "requeued", "code"),
    [
        (signal.SIGUSR1, True, 143),  # out of time: ranks are told, the job queues again
        (signal.SIGTERM, False, 143),  # cancelled: Slurm tells the ranks
        (None, False, 7),
    ],
)
def test_how_it_ends(number: int | None, requeued: bool, code: int, tmp_path: Path):
    bundle = tmp_path / "bundle"
    render(make_plan(loaded({"launch": {"launcher": "slurm"}}))).write(bundle)
    programs = tmp_path / "bin"
    programs.mkdir()
    end = "exit 7" if number is None else "until [ -e told ]; do sleep 0.05; done; exit 143"
    _program(programs, "srun", f"touch started; {end}")
    _program(programs, "scancel", 'echo "$*" > cancelled; touch told')
    _program(programs, "scontrol", 'if [ "$1" = requeue ]; then echo "$2" > requeued; else echo node1; fi')
    _program(programs, "python", "")
    environ = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "SLURM_JOB_ID": "12",
        "SLURM_JOB_NODELIST": "node1",
        "DSFORGE_PYTHON": str(programs / "python"),
        "DSFORGE_CORPUS": "corpus",
    }
    process = subprocess.Popen(["bash", str(bundle / "launch.sh")], cwd=tmp_path, env=environ)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (tmp_path / "started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    if number is not None:
        process.send_signal(number)
    if number == signal.SIGTERM:
        (tmp_path / "told").touch()
    assert process.wait(PATIENCE_SECONDS) == code
    assert (tmp_path / "requeued").exists() is requeued
    if requeued:
        assert (tmp_path / "requeued").read_text() == "12\n"
        assert (tmp_path / "cancelled").read_text() == "--signal=TERM 12\n"
