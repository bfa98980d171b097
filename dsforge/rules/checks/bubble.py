"""DSF131: micro-batches fill the pipeline."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    pp, vp, micros = facts.recipe.parallel.pp, facts.recipe.parallel.vp, facts.accumulation_steps
    if pp > 1 and micros is not None and micros * vp < 4 * pp:
        idle, least = (pp - 1) / vp, -(-4 * pp // vp)
        share = idle / (micros + idle)
        stages = f"{pp} stages of {vp} parts" if vp > 1 else f"{pp} stages"
        yield Found(
            f"{micros} micro-batches over {stages} leave {share:.0%} of each step idle",
            "batch.global",
            f"at least {least} micro-batches a step: raise the global batch or lower the micro-batch",
        )


RULE = Rule(
    code="DSF131",
    name="bubble",
    severity=Severity.WARNING,
    summary="micro-batches fill the pipeline",
    why=(
        "With m micro-batches and p stages the bubble is (p - 1) / (m + p - 1) of a step (Narayanan "
        "et al. 2021, section 2.2); m >= 4p keeps it under a fifth. Virtual stages divide p - 1."
    ),
    check=_check,
)
