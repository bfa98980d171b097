"""Fixtures of all tests: the command line in this process, and golden files."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# The same examples every time, so that a change is judged by itself; `--hypothesis-profile=explore` looks
# for new ones.
settings.register_profile("dsforge", deadline=None, max_examples=40, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("dsforge")


_LONGEST = (
    *("test_verify.py", "test_faults.py", "test_launch.py"),
    *("test_twenty_kills.py", "test_stop_requests.py"),
    *("test_replicas.py", "test_single_faults.py", "test_hugging_face.py", "test_megatron_core.py"),
)
"""Files that take minutes, the longest first: begun last, one would run alone at the end."""

_UNCOUNTED = (
    *("test_mapping.py", "test_against_transformers.py", "test_published_counts.py"),
    *("test_program_damage.py", "test_best.py"),
)
"""Hundreds of examples each of what other tests cover line by line: counted, they take twice as long."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first, for runs of several files at a time; count no lines of mass examples."""
    place = {name: number for number, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))
    for item in items:
        if item.path.name in _UNCOUNTED:
            item.add_marker("no_cover")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="Write golden files anew; then read the diff."
    )
    parser.addoption(
        "--update-matrix", action="store_true", help="Write what `verify` measures into its page."
    )


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Draw the same numbers in a test whatever ran before it in its process."""
    random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run `dsforge` in this process."""
    from dsforge.cli.main import main

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def dsforge(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with this tree's program on the path, without what would change recipes or runs."""
    from tests.support.recipes import ROOT

    program = tmp_path_factory.mktemp("bin") / "dsforge"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dsforge.cli "$@"\n')
    program.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DSFORGE_")}
    return {**kept, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with a golden file byte for byte."""
    update = request.config.getoption("--update-golden")

    def compare(path: Path, text: str) -> None:
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        assert path.is_file(), f"{path} is missing; --update-golden writes it"
        assert text.encode() == path.read_bytes()

    return compare


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests measured: faults on clusters say how long everything took to be down."""
    for report in terminalreporter.getreports("passed"):
        for name, value in getattr(report, "user_properties", ()):
            terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {name}: {value}")
