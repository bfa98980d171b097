"""The trainers that build a recipe's model and honour the rest of it."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.catalog.engines.capabilities import Capabilities, capabilities, trainers
from dsforge.catalog.families import families
from dsforge.layout.families import differences
from dsforge.layout.hf_config import misfits
from dsforge.rules.facts import Facts
from dsforge.rules.honours import unhonoured


def builders(facts: Facts) -> Iterator[Capabilities]:
    """Yield them, first those most like the recipe's own."""
    own, shape, seq_len = facts.capabilities, facts.shape, facts.recipe.batch.seq_len

    def unlike(one: Capabilities) -> tuple[bool, bool]:
        return one.hugging_face != own.hugging_face, one.deepspeed != own.deepspeed

    for one in sorted(map(capabilities, trainers()), key=unlike):
        plain = [families()[name] for name in one.families]
        if differences(shape, plain, seq_len, one.traits) or (one.hugging_face and misfits(shape)):
            continue
        if not any(unhonoured(one, facts.recipe)):
            yield one


def in_words(trainer: Capabilities, facts: Facts) -> str:
    """Return the edit with which a trainer takes the recipe."""
    parallel = facts.recipe.parallel
    asks = trainer.splits_for_experts and facts.shape.experts is not None and parallel.tp > 1
    also = " with `parallel.sequence_parallel: true`" if asks and not parallel.sequence_parallel else ""
    return f"`trainer: {trainer.trainer}`{also}"
