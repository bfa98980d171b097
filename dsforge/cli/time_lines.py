"""An estimate in lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from dsforge.base.units import format_bytes, format_count

if TYPE_CHECKING:
    from dsforge.plan.estimate import Estimate, Rates
    from dsforge.plan.measurements import Factor, Known
    from dsforge.plan.memory import MemoryEstimate
    from dsforge.plan.run_cost import RunCost


def time_lines(made: Estimate | str) -> Iterator[str]:
    """Yield what a plan's estimate tells, or why there is none."""
    if isinstance(made, str):
        yield f"time     no estimate: {made}"
        return
    known = f"published runs of {made.engine}: within {made.error:.0%} on average"
    if not made.measured:
        known = f"not measured on this GPU, told from its peaks: within {made.error:.0%} where that was tried"
    known += f"; nobody has published one with {' or '.join(made.beyond)}" if made.beyond else ""
    if (factor := made.calibrated) is not None:
        known = calibrated_words(factor)
    total = made.step.total
    yield f"time     {total:.3g} s a step ({known}), {made.tokens_per_second_per_gpu:,.0f} tokens/s a GPU"
    yield f"rate     {_rates(made.full)}"
    yield f"causal   {_rates(made.causal)}, attention's lower half counted alone"
    parts = sorted(asdict(made.step).items(), key=lambda part: -part[1])
    shares = [f"{name.replace('_', ' ')} {seconds / total:.0%}" for name, seconds in parts]
    yield f"of which {', '.join(one for one in shares if not one.endswith(' 0%'))}"
    if made.disk_bytes_per_second is not None:
        yield f"disks    taken to move {format_bytes(round(made.disk_bytes_per_second))}/s for each GPU"
    groups = [f"{one.group} {one.ranks} {one.share:.1%} over {one.link}" for one in made.communication]
    if groups:
        yield f"waits    for {', '.join(groups)}"
    yield f"run      {_run(made.run)}"
    yield f"saves    {_checkpoint(made.run)}"


def measured_lines(known: Known | None, memory: MemoryEstimate | str) -> Iterator[str]:
    """Yield what a calibration says of a plan besides its time."""
    if known is None:
        return
    if (own := known.measured) is not None:
        held = f", {format_bytes(own.memory_bytes)} held by rank 0" if own.memory_bytes is not None else ""
        yield f"measured {own.step_seconds:.3g} s a step of this layout (middle half {own.spread:.0%}){held}"
    if (factor := known.factor) is None:
        if own is None:
            yield f"measured nothing of this layout, and nothing predicted that {known.file} could scale"
    elif factor.memory is not None and not isinstance(memory, str):
        most = max(stage.allocated for stage in memory.stages)
        yield (
            f"memory   x {factor.memory:.3g} measured: {format_bytes(round(most * factor.memory))} allocated "
            f"on the fullest rank, not {format_bytes(most)}"
        )


def calibrated_words(factor: Factor) -> str:
    """Return what an estimate is scaled by, and how sure that is."""
    where = f" on {factor.host}" if factor.host else ""
    layouts = f"{factor.layouts} layout{'s' if factor.layouts > 1 else ''}"
    within = f": within {factor.error:.0%} on average" if factor.error is not None else ""
    return f"x {factor.time:.3g} by {layouts} measured{where}{within}"


def _rates(rates: Rates) -> str:
    told = f"{rates.model:.0f} TFLOP/s a GPU of the model's"
    told += f" (MFU {rates.mfu:.0%})" if rates.mfu is not None else ""
    if rates.hardware != rates.model:
        told += f", {rates.hardware:.0f} computed"
        told += f" (HFU {rates.hfu:.0%})" if rates.hfu is not None else ""
    return told


def _run(run: RunCost) -> str:
    told = f"{run.days:.3g} days, {format_count(round(run.gpu_hours))} GPU-hours"
    if run.money is not None:
        told += f", price {run.money:,.0f}"
    if run.energy_kwh is not None:
        told += f", {run.energy_kwh:,.0f} kWh at {run.board_watts:.0f} W a board x {run.power_overhead:g}"
    return told


def _checkpoint(run: RunCost) -> str:
    told = f"{format_bytes(run.checkpoint_bytes)} a checkpoint"
    return told + (f", {run.checkpoint_seconds:.3g} s" if run.checkpoint_seconds is not None else "")
