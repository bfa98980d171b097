"""Fixtures of the tests that start real ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.launch_support.recipe_runs import RecipeRun
from tests.launch_support.supervised import Supervised


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    """Start supervised runs that end with the test."""
    started: list[Supervised] = []

    def start(**options: Any) -> Supervised:
        run = Supervised(tmp_path / f"case-{len(started)}", **options)
        started.append(run)
        return run

    yield start
    for run in started:
        run.clean_up()


@pytest.fixture
def job() -> Iterator[Callable[..., RecipeRun]]:
    """Launch tiny recipes that end with the test."""
    yield from _jobs()


@pytest.fixture(scope="module")
def lasting_job() -> Iterator[Callable[..., RecipeRun]]:
    """The same, ending with the module."""
    yield from _jobs()


def _jobs() -> Iterator[Callable[..., RecipeRun]]:
    started: list[RecipeRun] = []

    def start(folder: Path, *changes: str) -> RecipeRun:
        started.append(RecipeRun(folder, *changes))
        return started[-1]

    yield start
    for run in started:
        run.clean_up()
