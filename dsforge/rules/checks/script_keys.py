"""DSF145: what is set in a script's recipe reaches the script."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.external.placeholders import used_keys
from dsforge.recipe.resolved import leaves
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    recipe, section = facts.recipe, facts.recipe.external
    if section is None or recipe.trainer != "external":
        return
    flavour = flavour_of(section.flavour)
    if flavour.takes != "anything":
        return
    asked = used_keys(section.arguments)
    written = recipe.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for key, value in leaves(written):
        parts = key.split(".")
        served = any(".".join(parts[:length]) in flavour.served for length in range(1, len(parts) + 1))
        if value != {} and not served and key not in asked:
            yield Found(
                f"`{key}` is set to {value}, and nothing hands it to the script",
                key,
                f"ask for it in external.arguments as `{{{key}}}`, or remove it",
            )


RULE = Rule(
    code="DSF145",
    name="script-keys",
    severity=Severity.ERROR,
    summary="every key set in a script's recipe reaches the script",
    why="A script reads its arguments alone: the key would be ignored without a word.",
    check=_check,
    firm=True,
)
