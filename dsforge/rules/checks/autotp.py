"""DSF805: AutoTP splits the layers of the model, under the stages of ZeRO that it trains rightly with."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.builders import builders, in_words
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

SPLIT = ("llama", "qwen2", "qwen3")
"""Families whose split layers were seen to train as whole ones do."""


def _check(facts: Facts) -> Iterator[Found]:
    capabilities, tp = facts.capabilities, facts.recipe.parallel.tp
    if tp == 1 or not capabilities.takes("parallel.tp", tp):
        return
    shape = facts.shape
    other = "".join(f", or {in_words(one, facts)}" for one in builders(facts) if not one.whole_tables)
    if capabilities.hugging_face and capabilities.deepspeed and shape.arch not in SPLIT:
        yield Found(
            f"AutoTP splits layers of {', '.join(SPLIT)}; those of {shape.arch} (fused matrices, experts, "
            "norms of another kind) it would leave whole or cut wrongly",
            "parallel.tp",
            f"`tp: 1`{other}",
            Fix("parallel.tp", 1),
        )
    most = capabilities.zero_under_tp
    if facts.zero is not None and facts.zero > most:
        yield Found(
            f"layers split by AutoTP are trained under ZeRO-{most} at most, this is ZeRO-{facts.zero}",
            "parallel.zero",
            f"`zero: {most}`{other}",
            Fix("parallel.zero", most),
        )


RULE = Rule(
    code="DSF805",
    name="autotp",
    severity=Severity.ERROR,
    summary="AutoTP splits layers of the Llama and Qwen families, under ZeRO-2 at most",
    why="Every rank begins with the whole model and cuts its layers, which ZeRO-3 would have dealt out; "
    "and a fused layer cut in the wrong places trains another model.",
    check=_check,
    plannable=True,
)
