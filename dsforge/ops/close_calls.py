"""Where rounding may have sent a layout's token to another expert, the one process sends it there, too."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dsforge.launch.types import RunOutcome
from dsforge.ops.reference_run import Reference
from dsforge.records.close_calls import CloseCall, may_explain

_TURNS = 8
_ONSET = 0.1
"""Share of the tolerance from which a difference is more than the rounding of sums."""
_MOST_NATS = 1.0
"""What a token's other expert may change of its own sample's loss: chosen, far above any seen (ADR 48)."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The run of one process that a layout is judged by, and the close calls that it decides the other way.

    `tried`: how many calls were; `left`: how many more may explain where the layout parts from that run.
    """

    reference: Reference
    other: tuple[CloseCall, ...] = ()
    agrees: bool = True
    tried: int = 0
    left: int = 0

    @property
    def undecided(self) -> bool:
        """Close calls explain where they part first, and none what follows; or not all of them were tried."""
        return not self.agrees and (bool(self.other) or self.left > 0)

    def told(self) -> str:
        """Return what close calls have to do with where the runs part, for people."""
        if self.agrees or not self.tried:
            return ""
        if not self.undecided:
            return f"; {self.tried} close calls of routers do not explain it"
        explained = "explain where they part first, and not what follows"
        why = (
            explained
            if self.other
            else f"may explain it, of which {self.tried} do not and {self.left} were not tried"
        )
        return f"; DSF817: close calls of routers {why}: another train.seed may decide"


Place = tuple[int, bool]
"""A step, and whether its validation."""


def _apart(outcome: RunOutcome, reference: Reference) -> dict[Place, float]:
    """Return by how much losses differ; infinite where one is not a number."""
    trained = zip(outcome.losses.values(), reference.losses, strict=True)
    apart = {(step, False): a - b for step, (a, b) in enumerate(trained, 1)}
    validated = outcome.validation_losses.items()
    apart |= {(step, True): loss - reference.validation_losses[step] for step, loss in validated}
    return {at: math.inf if math.isnan(difference) else abs(difference) for at, difference in apart.items()}


def parted(outcome: RunOutcome, reference: Reference, tolerance: float) -> Place | None:
    """Return where the losses first differ by more than allowed."""
    apart = _apart(outcome, reference)
    return min((at for at, difference in apart.items() if difference > tolerance), default=None)


def settle(
    outcome: RunOutcome,
    reference: Reference,
    tolerance: float,
    again: Callable[[tuple[CloseCall, ...]], Reference],
    samples: int,
) -> Settled:
    """Return the run of the one process that agrees with the layout the longest.

    Where they first differ by more than rounding, close calls before it are decided the other way (`again`),
    one at a time; one is kept if that is later then, or never. What is more than one of a step's `samples`
    can change is a fault.
    """
    if max(_apart(outcome, reference).values(), default=0.0) > _MOST_NATS / samples:
        return Settled(reference, agrees=False)
    best = reference
    other: tuple[CloseCall, ...] = ()
    tried: set[tuple[int, bool, int, int, int]] = set()
    while parted(outcome, best, tolerance) is not None:
        began = parted(outcome, best, _ONSET * tolerance)
        assert began is not None, "what differs by more than the tolerance differs by more than a part of it"
        able = [call for call in may_explain(best.close_calls, began) if call.place not in tried]
        if not able or len(tried) == _TURNS:
            return Settled(best, other, False, len(tried), len(able))
        tried.add(able[0].place)
        turned = again((*other, able[0]))
        later = parted(outcome, turned, _ONSET * tolerance)
        if later is None or later > began:
            best, other = turned, (*other, able[0])
    return Settled(best, other, True, len(tried))
