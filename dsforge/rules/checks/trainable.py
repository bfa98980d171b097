"""DSF141: the trainer builds this model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.catalog.engines.capabilities import Capabilities
from dsforge.catalog.families import families
from dsforge.layout.families import differences
from dsforge.layout.hf_config import misfits
from dsforge.recipe.model_file import names_config
from dsforge.rules.builders import builders, in_words
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    trainer, shape, seq_len = facts.capabilities, facts.shape, facts.recipe.batch.seq_len
    if shape.experts is not None and not shape.experts.fit(shape.layers):
        return  # such experts no model has (DSF791)
    plain = [families()[name] for name in trainer.families]
    window = None if "window" in trainer.traits else shape.traits.window
    if window is not None and not differences(shape, plain, window, trainer.traits):
        if seq_len > window:
            yield Found(
                f"{trainer.trainer} attends to all {seq_len} tokens, {shape.name} to the last {window}",
                "batch.seq_len",
                f"seq_len at most {window}, where both are the same",
                Fix("batch.seq_len", window),
            )
    elif found := differences(shape, plain, seq_len, trainer.traits):
        names = " and ".join(trainer.families)
        others = list(builders(facts))
        yield Found(
            f"{trainer.trainer} trains {names} shapes; of {shape.name} it cannot honour: {', '.join(found)}",
            "model",
            _told(others, facts)
            + f"choose a model of the families {names}; `dsforge presets list` marks them",
            Fix("trainer", others[0].trainer) if others else None,
        )
    elif trainer.hugging_face and not names_config(facts.recipe.model) and (found := misfits(shape)):
        yield Found(
            f"{shape.name} is no model of Hugging Face's: the nearest has {', '.join(found)}",
            "model",
            _told(builders(facts), facts)
            + "name the model's config.json, or choose a shape that transformers has",
        )


def _told(others: Iterable[Capabilities], facts: Facts) -> str:
    told = " or ".join(in_words(one, facts) for one in others)
    return f"{told} trains it; or " if told else ""


RULE = Rule(
    code="DSF141",
    name="trainable",
    severity=Severity.ERROR,
    summary="the trainer builds this model",
    why="Another model of the same size would be trained under this name.",
    check=_check,
    plannable=True,
    firm=True,
)
