"""Memory of every pipeline stage's ranks, by component."""

from dsforge.cost.memory.stages import fullest, stage_memory
from dsforge.cost.memory.types import StageMemory

__all__ = ["StageMemory", "fullest", "stage_memory"]
