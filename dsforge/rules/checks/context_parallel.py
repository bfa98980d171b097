"""DSF773: sequences divide into twice as many parts as CP."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    cp, seq_len = facts.recipe.parallel.cp, facts.recipe.batch.seq_len
    if cp > 1 and facts.capabilities.takes("parallel.cp", cp) and seq_len % (2 * cp):
        # DP takes the ranks that CP gives up, where the recipe leaves it.
        others, free = facts.model_parallel // cp, facts.recipe.parallel.dp == "auto"
        fits = max(
            degree
            for degree in range(1, cp)
            if degree == 1 or (seq_len % (2 * degree) == 0 and facts.devices % (others * degree) == 0)
        )
        dp = "" if free else f" with DP {facts.devices // (others * fits)}"
        yield Found(
            f"{seq_len} tokens are no {2 * cp} equal parts for CP {cp}",
            "parallel.cp",
            f"a seq_len that is a multiple of {2 * cp}, or CP {fits}{dp}",
            Fix("parallel.cp", fits) if free else None,
        )


RULE = Rule(
    code="DSF773",
    name="context-parallel",
    severity=Severity.ERROR,
    summary="sequences divide into twice as many parts as CP",
    why=(
        "Under a causal mask later tokens cost more, so each rank takes a part from the front and one from "
        "the back (Megatron, get_batch_on_this_cp_rank); they must be equal."
    ),
    check=_check,
    plannable=True,
)
