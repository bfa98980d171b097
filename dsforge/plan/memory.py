"""What a planned step takes of every GPU, by the calibrated memory model, and whether it fits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from dsforge.base.errors import Finding, Severity
from dsforge.base.units import format_bytes
from dsforge.catalog.tables import find_hardware
from dsforge.cost.memory import StageMemory, stage_memory
from dsforge.cost.memory.constants import memory_constants
from dsforge.plan.job import job_of
from dsforge.plan.types import Plan

Verdict = Literal["fits", "tight", "does not fit"]


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Memory by stage. `engine`: whose measured runs its constants are from.

    `errors`: mean relative errors on published runs that the fit had not seen, by static, allocated,
    reserved, device. The verdict allows for that error either way; None where the capacity is not known.
    """

    stages: tuple[StageMemory, ...]
    capacity_bytes: int | None
    verdict: Verdict | None
    errors: dict[str, float]
    engine: str

    @property
    def fullest(self) -> StageMemory:
        """The stage whose ranks hold most."""
        return max(self.stages, key=lambda stage: stage.device)

    @property
    def margin_bytes(self) -> int | None:
        """Bytes of the GPU that the fullest rank leaves; less than none where it does not fit."""
        return None if self.capacity_bytes is None else self.capacity_bytes - self.fullest.device

    def to_json_value(self) -> dict[str, Any]:
        """Return the JSON-ready mapping."""
        made = asdict(self)
        made["stages"] = [asdict(stage) for stage in self.stages]
        return {**made, "margin_bytes": self.margin_bytes, "fullest_stage": self.fullest.stage}

    def finding(self, hint: str | None) -> Finding | None:
        """Return what there is to say of a verdict that is not good."""
        if self.verdict in (None, "fits") or self.capacity_bytes is None:
            return None
        error = f"published runs: within {self.errors['device']:.0%}"
        has = format_bytes(self.capacity_bytes)
        if self.verdict == "tight":
            takes = f"stage {self.fullest.stage} is estimated to take {format_bytes(self.fullest.device)}"
            text = f"memory is tight: {takes} of {has} a GPU ({error})"
            if self.fullest.device > self.capacity_bytes:
                above = f"more than the {has} of a GPU: it fits only where the estimate is too high"
                text = f"memory is tight: {takes}, {above} ({error})"
            return Finding("DSF751", Severity.WARNING, text, "cluster.gpu", None, hint)
        most = max(self.stages, key=lambda stage: stage.allocated)
        holds = f"stage {most.stage} is estimated to hold {format_bytes(most.allocated)} at once"
        return Finding(
            "DSF750",
            Severity.ERROR,
            f"it does not fit: {holds}, of {has} a GPU ({error})",
            "cluster.gpu",
            None,
            hint,
        )


def memory_estimate(plan: Plan) -> MemoryEstimate | str:
    """Return the memory of a plan's stages, or in words why it is not known."""
    job = job_of(plan)
    if isinstance(job, str):
        return job
    stages = stage_memory(job)
    capacity, errors = find_hardware(plan.gpu).memory_bytes, memory_constants().errors
    verdict = None if capacity is None else verdict_of(stages, capacity, errors["device"])
    return MemoryEstimate(stages, capacity, verdict, dict(errors), job.engine)


def verdict_of(stages: tuple[StageMemory, ...], capacity_bytes: int, error: float) -> Verdict:
    """Return whether an estimate fits when it is wrong by its error: in any case, perhaps, or in no case.

    To fit, all that nvidia-smi would show has to. What the allocator reserves beyond what is allocated it
    gives back before it fails, so that only what is allocated at once cannot fit.
    """
    if max(stage.device for stage in stages) * (1 + error) <= capacity_bytes:
        return "fits"
    least = max(stage.allocated for stage in stages) * (1 - error)
    return "tight" if least <= capacity_bytes else "does not fit"
