"""The README's table of trainers says what their data files say."""

from __future__ import annotations

from dsforge.catalog.engines.capabilities import capabilities, trainers
from dsforge.recipe.fields import fields
from tests.support.recipes import ROOT


def _taken(trainer: str, key: str) -> str:
    """Return the values of a key that do something and that a trainer takes."""
    choices = (value for value in fields()[key].choices if value not in ("none", "auto"))
    return ", ".join(str(one) for one in choices if capabilities(trainer).takes(key, one)) or "no"


def _row(trainer: str) -> str:
    ours = capabilities(trainer)
    flags = (
        ours.takes("train.dropout", 0.1),
        "experts" in ours.traits,
        *(ours.takes(f"parallel.{degree}", 2) for degree in ("tp", "pp", "vp", "cp", "ep")),
    )
    keys = ("optimizer.type", "train.precision", "offload.optimizer", "offload.parameters")
    cells = (
        f"`{trainer}`",
        *(_taken(trainer, key) for key in keys),
        *("yes" if flag else "no" for flag in flags),
        _taken(trainer, "parallel.zero"),
    )
    return f"| {' | '.join(cells)} |"


def test_the_table_says_what_each_trainer_takes():
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("| trainer | optimizer |"))
    shown = lines[at + 2 : at + 2 + len(trainers())]
    assert sorted(shown) == sorted(_row(trainer) for trainer in trainers())
    assert lines[at + 2 + len(trainers())] == ""
