"""Where rounding may have sent a layout's token to another expert, the one process sends it there, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dsforge.launch.types import RunOutcome
from dsforge.ops.reference_run import Reference
from dsforge.records.close_calls import CloseCall, may_explain

_TURNS = 8


@dataclass(frozen=True, slots=True)
class Settled:
    """The run of one process that a layout is judged by, and the close calls that it decides the other way.

    `tried`: how many calls do not explain where the layout parts from it; `left`: how many more may.
    """

    reference: Reference
    other: tuple[CloseCall, ...] = ()
    tried: int = 0
    left: int = 0

    def told(self) -> str:
        """Return what close calls have to do with where the runs part, for people."""
        if not self.tried:
            return ""
        untried = f", {self.left} more were not tried: another train.seed may have fewer" if self.left else ""
        return f"; {self.tried} close calls of routers do not explain it{untried}"


def parted(outcome: RunOutcome, reference: Reference, tolerance: float) -> tuple[int, bool] | None:
    """Return the first step, and whether its validation, of which the losses differ by more than allowed."""
    trained = zip(outcome.losses.values(), reference.losses, strict=True)
    apart = {(step, False): a - b for step, (a, b) in enumerate(trained, 1)}
    validated = outcome.validation_losses.items()
    apart |= {(step, True): loss - reference.validation_losses[step] for step, loss in validated}
    # A loss that is not a number is not within the tolerance.
    return min((at for at, difference in apart.items() if not abs(difference) <= tolerance), default=None)


def settle(
    outcome: RunOutcome,
    reference: Reference,
    tolerance: float,
    again: Callable[[tuple[CloseCall, ...]], Reference],
) -> Settled:
    """Return the run of the one process that agrees with the layout longest.

    Where they part, close calls before it are decided the other way (`again`), one at a time; one is kept if
    the two then part later or never. Without an end in which they agree the first run is returned.
    """
    best = reference
    other: tuple[CloseCall, ...] = ()
    tried: set[tuple[int, bool, int, int, int]] = set()
    while (at := parted(outcome, best, tolerance)) is not None:
        able = [call for call in may_explain(best.close_calls, at) if call.place not in tried]
        if not able or len(tried) == _TURNS:
            return Settled(reference, (), len(tried), len(able))
        tried.add(able[0].place)
        turned = again((*other, able[0]))
        later = parted(outcome, turned, tolerance)
        if later is None or later > at:
            best, other = turned, (*other, able[0])
    return Settled(best, other)
