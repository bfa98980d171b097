"""The batch triple: global = micro x accumulation steps x DP, exactly."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchTriple:
    """A solved batch, in samples."""

    global_size: int
    micro: int
    accumulation_steps: int
    dp: int


def solve(global_size: int, micro: int, dp: int) -> BatchTriple | None:
    """Return the triple, or None when micro x DP does not divide the global batch."""
    accumulation, rest = divmod(global_size, micro * dp)
    return BatchTriple(global_size, micro, accumulation, dp) if rest == 0 and accumulation else None


def nearest_globals(global_size: int, micro: int, dp: int) -> tuple[int, int]:
    """Return the legal global batches just below (at least one step) and just above."""
    step = micro * dp
    below = max(step, global_size // step * step)
    return below, -(-global_size // step) * step


def legal_micros(global_size: int, dp: int, most: int = 64) -> list[int]:
    """Return the micro-batches up to `most` that divide a replica's share, ascending; [] if none can."""
    share, rest = divmod(global_size, dp)
    if rest or not share:
        return []
    return [micro for micro in range(1, min(share, most) + 1) if share % micro == 0]
