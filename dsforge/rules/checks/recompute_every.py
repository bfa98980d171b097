"""DSF133: blocks of layers are recomputed whole, within a stage."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

_KEY = "train.recompute_every"


def _check(facts: Facts) -> Iterator[Found]:
    train, most = facts.recipe.train, facts.most_layers
    every = train.recompute_every
    if every > 1 and train.recompute != "full":
        yield Found(
            f"blocks of {every} layers with `recompute: {train.recompute}`, which recomputes no whole layer",
            _KEY,
            "`recompute: full` recomputes blocks; without it leave recompute_every at 1",
            Fix(_KEY, 1),
        )
    elif most is not None and every > most:
        yield Found(
            f"blocks of {every} layers, but no stage has more than {most}",
            _KEY,
            f"at most {most}: a block does not reach over stages",
            Fix(_KEY, most),
        )


RULE = Rule(
    code="DSF133",
    name="recompute-every",
    severity=Severity.ERROR,
    summary="blocks of layers are recomputed whole, within a stage",
    why="A block size that nothing obeys would let the plan speak of memory that is not saved.",
    check=_check,
)
