"""DSF134: attention dropout gives FlashAttention up."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.base.units import format_bytes
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

_KEY = "train.attention_dropout"
_SOFTMAX_AND_MASK_BYTES = 4 + 1
"""A probability in fp32 and a mask's entry; the dropped probability comes on top."""


def _check(facts: Facts) -> Iterator[Found]:
    recipe = facts.recipe
    if facts.hardware.accelerator == "cpu" or not recipe.train.attention_dropout or facts.micro is None:
        return
    entry_bytes = _SOFTMAX_AND_MASK_BYTES + (4 if recipe.train.precision == "fp32" else 2)
    entries = facts.micro * facts.shape.heads // recipe.parallel.tp * recipe.batch.seq_len**2
    held = "at a time" if recipe.train.recompute == "selective" else "and micro-batch in flight"
    if recipe.train.recompute == "full":
        held = "of the block that is recomputed"
    yield Found(
        "attention_dropout needs the probabilities that FlashAttention never writes: "
        f"{format_bytes(entries * entry_bytes)} on each rank for a layer {held}",
        _KEY,
        "set it to 0; to repeat a recipe that has it, `recompute` keeps them for fewer layers at a time",
    )


RULE = Rule(
    code="DSF134",
    name="attention-dropout",
    severity=Severity.WARNING,
    summary="attention dropout gives FlashAttention up",
    why="Masks are the same in every layout, which no fused kernel offers; so probabilities are kept, "
    "and they grow with the square of seq_len.",
    check=_check,
)
