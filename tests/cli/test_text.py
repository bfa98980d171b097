"""What people read, as snapshots: `pytest --snapshot-update` writes them anew; then read the diff."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.support.recipes import ROOT, SMALL, write


def _shown(outcome: Any) -> str:
    return f"{outcome.out}--- stderr\n{outcome.err}--- exit {outcome.code}\n"


@pytest.mark.parametrize("name", ["smoke", "gpt3-175b-1024a100"])
def test_plan(cli: Callable[..., Any], snapshot: SnapshotAssertion, name: str):
    assert _shown(cli("plan", ROOT / "recipes" / f"{name}.yaml")) == snapshot


@pytest.mark.parametrize(
    "change",
    [
        ("zero: 1", "zero: 3"),
        ("zero: 1", "zero: 0"),
        ("global: 32, micro: 2", "globl: 32, micro: 0"),
        ("micro: 2", "micro: 4"),
        ("tp: 2", "tp: [2"),
    ],
    ids=["refused", "trains-wrongly", "unreadable", "warned", "broken"],
)
def test_findings(
    cli: Callable[..., Any],
    snapshot: SnapshotAssertion,
    change: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, SMALL.replace(*change))
    assert _shown(cli("validate", "recipe.yaml")) == snapshot


def test_a_rule(cli: Callable[..., Any], snapshot: SnapshotAssertion):
    assert _shown(cli("rule", "DSF121")) == snapshot


def test_a_starter(cli: Callable[..., Any], snapshot: SnapshotAssertion):
    assert _shown(cli("init", "--model", "llama3-8b", "--gpus", 16)) == snapshot


def test_a_name_cannot_forge_a_line(cli: Callable[..., Any]):
    shown = cli("plan", str(ROOT / "recipes" / "smoke.yaml"), 'name="x\\nerror: y"')
    assert shown.out.splitlines()[0].startswith("x\\nerror: y: ")
