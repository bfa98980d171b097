"""The run of one process that layouts share: one for those of a model, kept whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.ops.references import READ, kept, key
from tests.support.recipes import plan_of

FORGE = plan_of({"train": {"recompute": "full"}})


def test_layouts_of_a_model_share_a_reference():
    other = plan_of({"trainer": "transformers", "parallel": {"tp": 1, "pp": 1, "dp": 8}})
    assert (other.model.hf_config, other.layout.tp) != (FORGE.model.hf_config, FORGE.layout.tp)
    assert key(other, "c") == key(FORGE, "c") != key(FORGE, "another corpus")


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"layers": 8}},
        {"batch": {"micro": 1}},
        {"train": {"dropout": 0.1}},
        {"train": {"seed": 7}},
        {"optimizer": {"lr": 1.0e-4}},
    ],
    ids=str,
)
def test_what_the_reference_trains_by_tells_references_apart(change: dict[str, dict[str, float]]):
    assert set(change) <= set(READ)
    assert key(plan_of(change), "c") != key(FORGE, "c")


def test_a_reference_is_computed_once_and_a_half_made_one_is_not_kept(tmp_path: Path):
    calls = []

    def compute(folder: Path) -> None:
        calls.append(folder)
        (folder / "losses.json").write_text("1")
        if len(calls) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept(tmp_path, "k", compute)
    assert list(tmp_path.iterdir()) == []
    assert kept(tmp_path, "k", compute) == kept(tmp_path, "k", compute) == tmp_path / "k"
    assert len(calls) == 2
    assert [path.name for path in (tmp_path / "k").iterdir()] == ["losses.json"]
