"""DSF156: the options of a Slurm job are read, and fit each other."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.ignored import ignored
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    launch = facts.recipe.launch
    if launch.launcher != "slurm":
        yield from ignored("slurm", launch)
    elif 0 < launch.slurm.time <= launch.slurm.notice:
        yield Found(
            f"ranks are told to save {launch.slurm.notice:.0f} s before the end of a job of "
            f"{launch.slurm.time:.0f} s",
            "launch.slurm.time",
            "a longer time, or a shorter launch.slurm.notice",
        )
    elif 0 < launch.slurm.notice < launch.stop_timeout:
        yield Found(
            f"ranks may take {launch.stop_timeout:g} s to save, and Slurm kills them "
            f"{launch.slurm.notice:g} s after they are told",
            "launch.slurm.notice",
            "a longer launch.slurm.notice, or a shorter launch.stop_timeout",
            Fix("launch.stop_timeout", f"{launch.slurm.notice:g}s"),
        )


RULE = Rule(
    code="DSF156",
    name="slurm-options",
    severity=Severity.ERROR,
    summary="the options of a Slurm job are read, and fit each other",
    why="A job told to end before it trains queues for ever; one killed while it saves loses its work.",
    check=_check,
    plannable=True,
)
