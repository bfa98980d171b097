"""DSF246: the options of a PBS job are read, and fit each other."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.ignored import ignored
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    launch = facts.recipe.launch
    section = launch.pbs
    if launch.launcher != "pbs":
        yield from ignored("pbs", launch)
        return
    if 0 < section.time <= section.notice:
        yield Found(
            f"ranks are told to save {section.notice:.0f} s before the end of a job of {section.time:.0f} s",
            "launch.pbs.time",
            "a longer time, or a shorter launch.pbs.notice",
        )
    elif section.time and 0 < section.notice < launch.stop_timeout:
        yield Found(
            f"ranks may take {launch.stop_timeout:g} s to save, and PBS kills them {section.notice:g} s "
            "after they are told",
            "launch.pbs.notice",
            "a longer launch.pbs.notice, or a shorter launch.stop_timeout",
            Fix("launch.stop_timeout", f"{section.notice:g}s"),
        )
    if section.rerun and launch.env_from:
        yield Found(
            "a job that PBS starts again would lack its secrets, which are handed over once",
            "launch.pbs.rerun",
            "set launch.pbs.rerun to false, or give the secrets to ranks otherwise than by launch.env_from",
            Fix("launch.pbs.rerun", False),
        )


RULE = Rule(
    code="DSF246",
    name="pbs-options",
    severity=Severity.ERROR,
    summary="the options of a PBS job are read, and fit each other",
    why="A job told to end before it trains queues for ever; one killed while it saves loses its work.",
    check=_check,
    plannable=True,
)
