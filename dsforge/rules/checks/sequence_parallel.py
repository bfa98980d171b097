"""DSF775: sequence parallelism splits sequences over TP ranks."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

_KEY = "parallel.sequence_parallel"


def _check(facts: Facts) -> Iterator[Found]:
    parallel, seq_len = facts.recipe.parallel, facts.recipe.batch.seq_len
    if not parallel.sequence_parallel or not facts.capabilities.takes(_KEY, True):
        return
    if parallel.tp == 1:
        yield Found(
            "there is no TP over whose ranks sequences could be split",
            _KEY,
            "`sequence_parallel: false`, or `tp` above 1",
            Fix(_KEY, False),
        )
    elif seq_len % (parallel.tp * parallel.cp):
        yield Found(
            f"{seq_len} tokens cannot be split over {parallel.tp * parallel.cp} ranks",
            _KEY,
            "`sequence_parallel: false`, or a seq_len that TP x CP divides",
            Fix(_KEY, False),
        )


RULE = Rule(
    code="DSF775",
    name="sequence-parallel",
    severity=Severity.ERROR,
    summary="sequence parallelism splits sequences over TP ranks",
    why="Without TP it is switched off without a word; parts of sequences must be equal (Korthikanti et al. "
    "2022, section 4.2.2).",
    check=_check,
    plannable=True,
)
