"""The page of errors by source is what the benchmark says today, and the constants are few."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict

import pytest

from dsforge.cost.calibration import calibration
from tests.support.recipes import ROOT

NAMES = (
    *("accuracy_memory", "accuracy_page", "fit_catalog", "fit_memory", "occupied", "plan_accuracy"),
    *("published", "ranking"),
)


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield
    for name in NAMES:
        sys.modules.pop(name, None)


def test_the_page_is_the_benchmarks():
    """`python benchmarks/accuracy_page.py > docs/reference/accuracy.md` writes it anew."""
    import accuracy_page

    data = ROOT / "tests" / "data"
    made = "\n".join(accuracy_page.page(data / "throughput.csv", data / "memory.csv"))
    assert made == (ROOT / "docs" / "reference" / "accuracy.md").read_text("utf-8")


def test_memory_takes_six_constants_an_engine_at_most():
    import fit_memory

    assert max(map(len, fit_memory.FITTED.values())) <= 6
    known = set(fit_memory.PRIORS)
    assert all(set(keys) <= known for keys in fit_memory.FITTED.values())


def test_time_takes_few_constants():
    import fit_catalog

    keys = [key for group in fit_catalog.FITTED.values() for key in group]
    assert len(keys) == len(set(keys)) <= 50


def test_the_catalogue_knows_how_far_published_runs_go():
    import fit_catalog
    from published import read

    known = calibration()
    found = fit_catalog.reaches(list(read(ROOT / "tests" / "data" / "throughput.csv")), known)
    assert {name: asdict(reach) for name, reach in known.reaches.items()} == found
    assert found["megatron-core"] == {"seq_len": 8192, "cp": 2, "offload": False}
