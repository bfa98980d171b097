"""DSF151: secrets are named, not written."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.base.text import SECRET_NAME
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    for name in facts.recipe.launch.env:
        if SECRET_NAME.search(name):
            yield Found(
                f"launch.env.{name} looks like a secret and would be written to files",
                f"launch.env.{name}",
                f"`env_from: [{name}]` passes it from your environment instead",
            )


RULE = Rule(
    code="DSF151",
    name="env-secret",
    severity=Severity.ERROR,
    summary="secrets are named, not written",
    why="launch.env is written into the bundle, the manifest and the recipe's repository.",
    check=_check,
)
