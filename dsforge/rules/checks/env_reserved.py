"""DSF150: launch.env leaves the launcher's own variables alone."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

_RESERVED = {
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"),
    *("CROSS_RANK", "CROSS_SIZE", "MASTER_ADDR", "MASTER_PORT", "DS_ENV_FILE", "CUDA_VISIBLE_DEVICES"),
}


def _check(facts: Facts) -> Iterator[Found]:
    for name in facts.recipe.launch.env:
        if name in _RESERVED or name.startswith("DSFORGE_"):
            yield Found(
                f"launch.env sets {name}, which the launcher sets on every rank",
                f"launch.env.{name}",
                "remove it",
            )


RULE = Rule(
    code="DSF150",
    name="env-reserved",
    severity=Severity.ERROR,
    summary="launch.env leaves the launcher's own variables alone",
    why="Ranks take their identity from these; a recipe that sets them makes every rank the same one.",
    check=_check,
)
