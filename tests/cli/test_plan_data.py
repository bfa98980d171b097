"""What `plan` says of data: shares of a blend, validation, and where a data set stands twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.recipes import SMALL, write

BLEND = SMALL.replace("steps: 30", "steps: 30, eval_every: 10") + (
    "data:\n  train: [[7, data/a], [2, data/b], [1, data/c]]\n  valid: data/held\n"
)


def lines(cli: Callable[..., Any], folder: Path, text: str, *changes: str) -> dict[str, str]:
    outcome = cli("plan", write(folder, text), *changes)
    parts = [line.split(None, 1) for line in outcome.out.splitlines() if line.startswith("  ")]
    return {word: rest for word, rest in parts if word in ("data", "valid")}


def test_shares_and_validation_are_shown(cli: Callable[..., Any], tmp_path: Path):
    assert lines(cli, tmp_path, BLEND) == {
        "data": "70 % data/a, 20 % data/b, 10 % data/c",
        "valid": "256 samples every 10 steps and after the last, of data/held",
    }


def test_the_built_in_corpus_is_named_with_what_it_holds_out(cli: Callable[..., Any], tmp_path: Path):
    assert "valid" not in lines(cli, tmp_path, SMALL)
    shown = lines(cli, tmp_path, SMALL, "train.eval_every=5", "train.eval_samples=64")
    held_out = "documents of the built-in corpus that are held out"
    assert shown["valid"] == f"64 samples every 5 steps and after the last, of {held_out}"


def test_a_set_that_stands_twice_is_refused_at_its_second_place(cli: Callable[..., Any], tmp_path: Path):
    outcome = cli("validate", write(tmp_path, BLEND.replace("data/c", "data/../data/a")))
    assert outcome.code == 1
    assert "error[DSF116]" in outcome.err
    assert "recipe.yaml:10:37" in outcome.err
    assert "name it once, with the weight 8" in outcome.err
