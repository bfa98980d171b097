"""What the memory estimate says weighs the same everywhere: an error where it cannot fit, else a warning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.recipes import ROOT

Cli = Callable[..., Any]
LARGE = (ROOT / "recipes" / "llama3-8b-8a100.yaml", "train.recompute=none", "batch.micro=4")
TIGHT = (ROOT / "recipes" / "llama3-8b-8a100.yaml", "train.recompute=none", "batch.micro=2")


@pytest.mark.parametrize(
    "command", [("validate",), ("plan",), ("launch", "--dry-run"), ("launch",), ("preflight",)]
)
def test_what_cannot_fit_is_refused_with_what_would(cli: Cli, tmp_path: Path, command: tuple[str, ...]):
    runs = ("--runs", tmp_path / "runs") if command[0] in ("launch", "preflight") else ()
    shown = cli(*command, *LARGE, *runs)
    assert shown.code == 1
    assert "error[DSF750]: it does not fit: stage 0 is estimated to hold " in shown.err
    assert "llama3-8b-8a100.yaml:5:" in shown.err
    assert "hint: it would fit with train.recompute=full" in shown.err
    assert not list(tmp_path.iterdir())


def test_what_may_not_fit_warns_and_starts(cli: Cli, tmp_path: Path):
    shown = cli("validate", *TIGHT)
    assert (shown.code, shown.out.splitlines()[-1]) == (0, f"{TIGHT[0]}: ok")
    assert "warning[DSF751]: memory is tight: stage 0" in shown.err
    assert cli("launch", "--dry-run", *TIGHT, "--runs", tmp_path / "runs").code == 0


def test_an_estimate_can_be_passed_and_nothing_else(cli: Cli, tmp_path: Path):
    runs = ("--runs", tmp_path / "runs")
    assert cli("launch", "--dry-run", *LARGE, *runs, "--allow", "DSF750").code == 0
    refused = cli("launch", "--dry-run", *LARGE, *runs, "--allow", "DSF160")
    assert refused.code == 2
    assert "'DSF160' is not" in refused.err


def test_states_that_alone_are_too_large_are_told_once(cli: Cli):
    shown = cli("plan", LARGE[0], "model=llama3-70b", "parallel.tp=1", "parallel.zero=1")
    assert shown.code == 1
    assert "error[DSF160]" in shown.err
    assert "DSF750" not in shown.err


def test_no_estimate_says_nothing(cli: Cli):
    shown = cli("validate", *LARGE, "cluster.gpu=cpu", "--json")
    assert (shown.code, shown.json["recipes"][0]["findings"]) == (0, [])
