"""Whether an external program that ended with code 0 on every rank has done what it was started for.

Megatron and GPT-NeoX leave by `exit()` where they refuse to go on, which no code tells from success.
"""

from __future__ import annotations

import re
from pathlib import Path

from dsforge.base.exits import ExitCode, ExitKind
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.launch.cause import Cause
from dsforge.launch.follow import Follower
from dsforge.launch.types import LaunchRequest

_STEP = re.compile(r"([0-9]{1,12})\s*$")
_MOST_CHARACTERS = 256


class ProgramEnd:
    """What an external program that tells of its steps had saved when an attempt began."""

    def __init__(self, request: LaunchRequest, folder: Path) -> None:
        """Take the request, and the folder of the program's checkpoints."""
        plan = request.plan
        self._world_size, self._steps = plan.layout.world_size, plan.train.steps
        flavour = flavour_of(plan.external.flavour) if plan.external is not None else None
        self._tells = flavour is not None and bool(flavour.marks)
        marks = flavour.checkpoint_marks if flavour is not None else ()
        self._marks = [folder / mark for mark in marks]
        named = [request.recipe_root / plan.checkpoint.resume / mark for mark in marks]
        begins = () if plan.checkpoint.resume == "never" else (*self._marks, *named)
        self._begins_anew = not any(mark.exists() for mark in begins)
        self._begun_step = max((_step_of(mark) or 0 for mark in begins), default=0)
        self._before = {mark: _written(mark) for mark in self._marks}

    def fault(self, follower: Follower) -> Cause | None:
        """Return that every rank ended well and the program did not, or None."""
        if not self._tells:
            return None
        last = follower.exits[self._world_size - 1]
        steps = sorted(follower.losses)
        if not steps:
            if not self._begins_anew and self._begun_step >= self._steps:
                return None
            message = "every rank ended with code 0, but the program made no step: its log says why"
            code = int(ExitCode.BEFORE_FIRST_STEP)
            return Cause(ExitKind.BEFORE_FIRST_STEP, code, message, last.rank, tail=last.tail)
        # It tells of every so many steps: those that are left may be fewer than that.
        between = steps[-1] - (steps[-2] if len(steps) > 1 else self._begun_step)
        if steps[-1] + max(1, between) > self._steps or self._has_saved(steps[-1]):
            return None
        message = (
            f"every rank ended with code 0 after step {steps[-1]} of {self._steps}, and the program saved no "
            "checkpoint there: its log says why"
        )
        return Cause(ExitKind.RANK_FAILED, int(ExitCode.FINDINGS), message, last.rank, tail=last.tail)

    def _has_saved(self, step: int) -> bool:
        """Tell whether the attempt has left a checkpoint of its end: it was to end early."""
        new = [mark for mark in self._marks if _written(mark) != self._before[mark]]
        return any((_step_of(mark) or 0) >= step for mark in new)


def _step_of(mark: Path) -> int | None:
    try:
        match = _STEP.search(mark.read_text("utf-8", "replace")[:_MOST_CHARACTERS])
    except OSError:
        return None
    return int(match[1]) if match else None


def _written(mark: Path) -> tuple[int, int] | None:
    try:
        there = mark.stat()
    except OSError:
        return None
    return there.st_mtime_ns, there.st_size
