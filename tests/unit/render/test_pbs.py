"""The batch script of PBS: what it asks for, and what it hands to qsub when it is started by hand."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dsforge.plan.resolve import make_plan
from dsforge.render.bundle import render
from tests.support.hostile import recorder
from tests.support.recipes import loaded

PBS = {"cluster": {"nodes": 2, "gpus_per_node": 4}, "launch": {"launcher": "pbs"}}


def _options(*changes: dict[str, Any]) -> list[str]:
    script = render(make_plan(loaded(PBS, *changes))).files["launch.sh"]
    lines = script.splitlines()
    first = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert not [line for line in lines[first:] if line.startswith("#PBS")]
    return re.findall(r"^#PBS (.*)$", script, re.MULTILINE)


def test_by_default_it_asks_for_nodes_and_ranks_alone():
    assert _options() == [
        *("-N small", "-r n", "-S /bin/bash"),
        *("-l select=2:ncpus=4:mpiprocs=4", "-l place=scatter"),
    ]


def test_every_option_of_the_recipe_is_asked_for():
    pbs = {
        "queue": "gpu",
        "project": "llm",
        "account": "lab-7",
        "time": "1d2h30m1s",
        "notice": 600,
        "cpus_per_rank": 6,
        "place": "scatter:excl",
        "resources": {"mem": "400gb", "gpu_type": "h100"},
        "rerun": True,
    }
    changes = ({"model": "gpt2"}, {"cluster": {"gpu": "h100-sxm-80gb"}}, {"parallel": {"tp": 1, "dp": 4}})
    assert _options({"launch": {"pbs": pbs}}, *changes) == [
        *("-N small", "-q gpu", "-P llm", "-A lab-7", "-r y", "-S /bin/bash"),
        "-l select=2:ncpus=24:mpiprocs=4:ngpus=4:mem=400gb:gpu_type=h100",
        *("-l place=scatter:excl", "-l walltime=26:30:01"),
    ]


@pytest.mark.parametrize(("folder", "code"), [("plain", 0), ("a,b", 3), ("a b", 3)])
def test_by_hand_qsub_is_given_plain_paths_alone(folder: str, code: int, tmp_path: Path):
    bundle = tmp_path / folder
    render(make_plan(loaded(PBS))).write(bundle)
    (tmp_path / "bin").mkdir()
    recorder(tmp_path / "bin" / "qsub", tmp_path / "called.json")
    done = subprocess.run(
        ["bash", str(bundle / "launch.sh")],
        env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert (tmp_path / "called.json").exists() is (code == 0)
    if code == 0:
        assert f"DSFORGE_BUNDLE={bundle}," in (tmp_path / "called.json").read_text()


def test_by_hand_secrets_are_not_shown_to_everybody(tmp_path: Path):
    render(make_plan(loaded(PBS, {"launch": {"env_from": ["HF_TOKEN"]}}))).write(tmp_path / "bundle")
    done = subprocess.run(
        ["bash", str(tmp_path / "bundle" / "launch.sh")],
        env={"PATH": "/usr/bin:/bin", "HF_TOKEN": "s3cret"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "PBS shows variables of jobs to everybody" in done.stderr
