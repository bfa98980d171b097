"""Tokens that stand between two experts: scores so close that rounding chooses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_SHOWS_WITHIN = 3
"""Steps; of single tokens sent elsewhere in small models, all that changed a loss did by the third."""


@dataclass(frozen=True, slots=True)
class CloseCall:
    """A token of which the last expert chosen and the first one not chosen have scores within rounding.

    Steps count from 1, `validation` is the one after the step; layers, samples and positions count from 0.
    """

    step: int
    validation: bool
    layer: int
    sample: int
    position: int
    roundings: float
    """Gap of the scores, in units of fp32's epsilon of the layer's largest score."""

    @property
    def at(self) -> tuple[int, bool]:
        """When it is made: validations come after their step."""
        return self.step, self.validation

    @property
    def place(self) -> tuple[int, bool, int, int, int]:
        """Which call it is, whatever its gap."""
        return self.step, self.validation, self.layer, self.sample, self.position

    def told(self) -> str:
        """Return it for people."""
        when = f"validation after step {self.step}" if self.validation else f"step {self.step}"
        return f"{when}, layer {self.layer}, sample {self.sample}, position {self.position}"


def may_explain(calls: Iterable[CloseCall], parted: tuple[int, bool]) -> list[CloseCall]:
    """Return the calls by which runs may have parted at a time, the latest and closest first.

    A token sent elsewhere changes its step's loss, and all weights from the next step on.
    """
    able = [
        call
        for call in calls
        if parted[0] - _SHOWS_WITHIN < call.step
        and call.at <= parted
        and (not call.validation or call.at == parted)
    ]
    return sorted(able, key=lambda call: (-call.step, not call.validation, call.roundings))
