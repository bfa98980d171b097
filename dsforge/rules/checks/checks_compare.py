"""DSF811: what `train.checks` compares is there on more than one rank, and compared in some step."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    recipe, checks = facts.recipe, facts.recipe.train.checks
    yield from _too_seldom(facts)
    if facts.dp is None or facts.zero is None:
        return
    parallel = recipe.parallel
    replicas = facts.dp * parallel.cp
    # Shards hold the same of what layers do not split, also of its parts; stages hold a tied weight whole.
    tied = parallel.pp > 1 and facts.shape.tied
    cut = facts.capabilities.cuts_parameters
    in_parts = {"gradients_every": facts.zero > 0 or cut, "parameters_every": facts.zero == 3 or cut}
    for key, parts in in_parts.items():
        has_copies = parallel.tp > 1 or (replicas > 1 or tied if not parts else replicas == 1 and tied)
        if not getattr(checks, key) or has_copies:
            continue
        if key == "gradients_every" and replicas > 1:
            yield Found(
                f"train.checks.{key} compares no gradients: under ZeRO-{facts.zero} no two of {replicas} "
                "replicas hold the same; it sees, once, that one of them updates each element, no more",
                f"train.checks.{key}",
                "leave it out; parameters_every compares where replicas hold whole parameters (ZeRO 1, 2)",
            )
        else:
            yield Found(
                f"train.checks.{key} would compare nothing: no two ranks hold the same of a parameter",
                f"train.checks.{key}",
                "leave it out",
                Fix(f"train.checks.{key}", 0),
            )


def _too_seldom(facts: Facts) -> Iterator[Found]:
    steps, checks = facts.steps, facts.recipe.train.checks
    otherwise = {
        "gradients_every": "nothing is compared",
        "parameters_every": "parameters are compared before the first step and where they are saved alone",
    }
    for key, what in otherwise.items():
        every: int = getattr(checks, key)
        if steps is not None and every > steps:
            yield Found(
                f"no step of {steps} is the turn of train.checks.{key} {every}: {what}",
                f"train.checks.{key}",
                f"{steps} at most",
                Fix(f"train.checks.{key}", steps),
            )


RULE = Rule(
    code="DSF811",
    name="checks-compare",
    severity=Severity.WARNING,
    summary="what `train.checks` compares is there on more than one rank, and compared in some step",
    why="A check that compares nothing finds nothing; where replicas hold parts of the parameters, ask for "
    "gradients_every, which sees that each part is updated once.",
    check=_check,
)
