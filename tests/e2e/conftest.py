"""Fixtures of the tests that start real ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

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
