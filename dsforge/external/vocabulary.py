"""Rows of the embedding: what a program rounds the vocabulary up to, and what keeps that under another TP."""

from __future__ import annotations

from collections.abc import Sequence

from dsforge.catalog.engines.capabilities import capabilities
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.external.options import option_table, read
from dsforge.layout.shape import padded_vocab
from dsforge.recipe.model import Recipe

OPTION = "--make-vocab-size-divisible-by"


def vocab_divisor(recipe: Recipe) -> int:
    """Return what the vocabulary is padded to a multiple of, times TP."""
    section = recipe.external
    if recipe.trainer == "external" and section is not None:
        passed = passed_divisor(section.flavour, section.arguments)
        if passed is not None:
            return passed
    return capabilities(recipe.trainer).vocab_divisor


def passed_divisor(flavour: str, words: Sequence[str]) -> int | None:
    """Return the divisor that is passed on to a program; None where none is."""
    if flavour_of(flavour).takes != "options":
        return None
    given, _ = read(words, option_table(flavour))
    values = [int(one.values[0]) for one in given if one.option.name == OPTION]
    return max(1, values[-1]) if values else None


def divisor_that_keeps(padded: int, vocab: int, tp: int, step: int) -> int | None:
    """Return a divisor under which a vocabulary has this many rows with TP; None where none has.

    `step`: what the rows are a multiple of now, which is kept where TP divides it.
    """
    if step % tp == 0:
        return step // tp
    shares = (one for one in range(1, padded // tp + 1) if padded % (one * tp) == 0)
    return next((one for one in shares if padded_vocab(vocab, tp, one) == padded), None)
