"""`diff`: in what two recipes differ, by what the difference does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dsforge.base.errors import DsforgeError
from dsforge.external.vocabulary import vocab_divisor
from dsforge.layout.shape import padded_vocab, resolve_shape
from dsforge.plan.resolve import look_up, make_plan
from dsforge.recipe.consequences import Consequence, consequence
from dsforge.recipe.load import LoadedRecipe
from dsforge.recipe.resolved import leaves

ROWS = "(padded vocabulary)"
"""Stands for the rows of the embedding, which follow from the vocabulary and TP."""
TIMES = "(measured times)"
"""Stands for what the file holds that `parallel.partition_weights` names, by its SHA-256."""
SPELLING = "(text)"
"""Stands for comments, order and spelling, which hold no value."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: resolved values, whether the name was written, and the text where there is one.

    `rows` of the embedding: the vocabulary as it is padded; None where the model is not known. `times`: the
    SHA-256 of the measured times that stages are dealt out by; None where there are none.
    """

    data: dict[str, Any]
    is_named: bool
    text: str | None = None
    rows: int | None = None
    times: str | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that differs. None where a side does not have the key."""

    key: str
    a: Any
    b: Any
    consequence: Consequence

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        return {"key": self.key, "a": self.a, "b": self.b, "consequence": self.consequence.word}


def compare(a: Side, b: Side) -> list[Difference]:
    """Return the differences, the weightiest first."""
    left, right = _values(a, b), _values(b, a)
    found = [
        Difference(key, left.get(key), right.get(key), _consequence(key, a, b))
        for key in sorted(left.keys() | right.keys())
        if left.get(key) != right.get(key)
    ]
    found = list(_with_rows(found, a, b))
    if None not in (a.times, b.times) and a.times != b.times:
        found.append(Difference(TIMES, a.times, b.times, Consequence.EXECUTION))
    are_texts = None not in (a.text, b.text)  # a lock has its keys sorted
    if not found and are_texts and _env_order(a) != _env_order(b):
        found.append(Difference("launch.env", _env_order(a), _env_order(b), Consequence.COSMETIC))
    if not found and are_texts and a.text != b.text:
        message = "comments, order or spelling"
        found.append(Difference(SPELLING, message, message, Consequence.COSMETIC))
    return sorted(found, key=lambda one: (-one.consequence, one.key))


def _consequence(key: str, a: Side, b: Side) -> Consequence:
    """Return what a difference does: experts are balanced over each micro-batch, so that its size counts."""
    balanced = any(side.data.get("train", {}).get("balance_loss") for side in (a, b))
    return Consequence.CONVERGENCE if key == "batch.micro" and balanced else consequence(key)


def _with_rows(found: list[Difference], a: Side, b: Side) -> Iterator[Difference]:
    """Yield the differences, and that of the embedding's rows where TP makes one.

    An external program draws other weights for it, and cannot go on from the other side's checkpoints; our
    trainers draw the same and go on under the same TP alone.
    """
    is_new_vocabulary = any(one.key.partition(".")[0] == "model" for one in found)
    if None in (a.rows, b.rows) or a.rows == b.rows or is_new_vocabulary:
        yield from found
        return
    is_external = "external" in (a.data.get("trainer"), b.data.get("trainer"))
    weight = Consequence.CONVERGENCE if is_external else Consequence.EXECUTION
    for one in found:
        yield replace(one, consequence=weight) if one.key == "parallel.tp" else one
    yield Difference(ROWS, a.rows, b.rows, weight)


def rows_of(loaded: LoadedRecipe) -> int | None:
    """Return the rows of a recipe's embedding; None where its model or its TP is not known."""
    recipe = loaded.recipe
    try:
        shape = resolve_shape(recipe.model, recipe.batch.seq_len, loaded.model_config)
    except DsforgeError:
        return None
    if recipe.parallel.tp == "auto":
        try:
            return make_plan(loaded, refuse=False).model.padded_vocab
        except DsforgeError:
            return None
    return padded_vocab(shape.vocab, recipe.parallel.tp, vocab_divisor(recipe))


def times_of(loaded: LoadedRecipe) -> str | None:
    """Return the SHA-256 of a recipe's measured times; None where it names none that can be read."""
    shape, _, _ = look_up(loaded)
    return shape.times.sha256 if shape is not None and shape.times is not None else None


def _values(side: Side, other: Side) -> dict[str, Any]:
    """Return values by key. A section that the other side has as one value stays one value."""
    data = dict(side.data)
    if not (side.is_named or other.is_named):
        data.pop("name", None)  # both are called after their files
    whole = {
        key: data.pop(key)
        for key in ("model", "data")
        if isinstance(data.get(key), dict) != isinstance(other.data.get(key), dict)
    }
    return {**whole, **{key: value for key, value in leaves(data) if value not in ({}, None)}}


def _env_order(side: Side) -> list[str]:
    return list(side.data["launch"]["env"])
