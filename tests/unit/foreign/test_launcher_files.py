"""Hostfiles and .deepspeed_env files, against what deepspeed's launcher makes of the same lines."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dsforge.base.errors import Severity
from dsforge.foreign.env_file import check_env_file
from dsforge.foreign.hostfile import check_hostfile

LINES = {
    "node1 slots=8": (None, {"node1": 8}),
    "# node1": ("DSF670", None),
    "node1 slots=4x": ("DSF671", {"node1": 4}),
    "node1 slots=0": ("DSF671", {"node1": 0}),
    "node1 slots=4 # spare": ("DSF671", {"node1": 4}),
    "a,b slots=2": ("DSF672", {"a,b": 2}),
    "node1:22 slots=2": ("DSF672", {"node1:22": 2}),
    "me@node1 slots=2": ("DSF672", {"me@node1": 2}),
    "-oProxyCommand=x slots=2": ("DSF672", {"-oProxyCommand=x": 2}),
    "\ufeffnode1 slots=2": ("DSF672", {"\ufeffnode1": 2}),
    "node1 slots=2\nnode1 slots=4": ("DSF673", None),
    "node1 slots = 4": ("DSF670", None),
    "node1 SLOTS=4": ("DSF670", None),
    "node1": ("DSF670", None),
    "": ("DSF670", None),
}


@pytest.mark.parametrize("text", LINES, ids=repr)
def test_hostfile_lines(text: str):
    code, _ = LINES[text]
    found = check_hostfile(text, "hosts")
    assert [one.code for one in found] == ([code] if code else [])
    assert all(one.hint for one in found)


@pytest.mark.parametrize("text", LINES, ids=repr)
def test_the_launcher_makes_that_of_it(text: str):
    runner: Any = pytest.importorskip("deepspeed.launcher.runner")
    _, hosts = LINES[text]
    logging.disable(logging.CRITICAL)
    try:
        if hosts is None:
            with pytest.raises(ValueError, match="Hostfile"):
                runner._parse_hostfile(text.splitlines())
        else:
            assert dict(runner._parse_hostfile(text.splitlines())) == hosts
    finally:
        logging.disable(logging.NOTSET)


def test_a_hostfile_names_each_line():
    found = check_hostfile("# ours\nnode1 slots=8\n\n  node2 slots = 8\nnode1 slots=8\n", "hosts")
    assert [(one.code, str(one.place)) for one in found] == [("DSF670", "hosts:4:3"), ("DSF673", "hosts:5:1")]
    assert found[0].hint == "write `node2 slots=8`"
    assert "first in line 2" in found[1].message


ENV = {
    "NCCL_DEBUG=INFO": [],
    "PATH=/usr/bin:/bin": [],
    "": ["DSF680"],
    "NCCL_DEBUG": ["DSF680"],
    "# a comment": ["DSF680"],
    "# A=1": ["DSF681"],
    "export A=1": ["DSF681"],
    "A='x'": ["DSF681"],
    "A=x y": ["DSF682"],
    "A=$HOME": ["DSF682"],
    "A=1,2": ["DSF682"],
    "1A=2": ["DSF681"],
    "WANDB_API_KEY=abc123": ["DSF683"],
}


@pytest.mark.parametrize("line", ENV, ids=repr)
def test_env_lines(line: str):
    found = check_env_file(f"{line}\n", ".deepspeed_env")
    assert [one.code for one in found] == ENV[line]
    assert all(one.hint for one in found)
    assert not any("abc123" in f"{one.message} {one.hint}" for one in found)


@pytest.mark.parametrize("line", ENV, ids=repr)
def test_the_launcher_exports_that(line: str):
    """What is called clean arrives as written; what is called a crash crashes; quotes are literal."""
    runner: Any = pytest.importorskip("deepspeed.launcher.multinode_runner")
    slurm = runner.SlurmRunner.__new__(runner.SlurmRunner)
    slurm.exports = {}
    if ENV[line] == ["DSF680"]:
        with pytest.raises(ValueError, match="not enough values"):
            key, value = f"{line}\n".split("=", maxsplit=1)
        return
    key, value = f"{line}\n".split("=", maxsplit=1)
    slurm.add_export(key, value)
    name, _, written = line.partition("=")
    as_written = slurm.exports == {name: written} and "," not in written
    assert as_written == (ENV[line] in ([], ["DSF683"]) or not name.isidentifier() or name[0] == "1")


def test_an_env_file_names_each_line_and_the_last_wins():
    found = check_env_file("A=1\n\nA=2\nB=3", "env")
    assert [(one.code, str(one.place), one.severity) for one in found] == [
        ("DSF680", "env:2:1", Severity.ERROR),
        ("DSF684", "env:3:1", Severity.WARNING),
    ]
