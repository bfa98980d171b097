"""The Recipe: what a user writes, checked and frozen."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Discriminator, Field, Tag

from dsforge.recipe.model_sections import ShapeSection
from dsforge.recipe.quantities import Name, NotBoolean, PathText
from dsforge.recipe.section import Section
from dsforge.recipe.sections import (
    BatchSection,
    CheckpointSection,
    ClusterSection,
    DataSection,
    ExternalSection,
    LaunchSection,
    MonitorSection,
    OffloadSection,
    OptimizerSection,
    ParallelSection,
    TrainSection,
)

TrainerName = Literal["forge", "megatron-core", "transformers", "fsdp", "ddp", "external"]
TRAINERS: tuple[str, ...] = get_args(TrainerName)


def _model_form(value: Any) -> str:
    return "shape" if isinstance(value, dict | ShapeSection) else "preset"


class Recipe(Section):
    """One training job. Only version, model, cluster and batch are required."""

    version: Annotated[Literal[1], NotBoolean] = Field(description="Version of the recipe format.")
    extends: PathText | None = Field(
        default=None, description="A recipe that this one lies over, relative to this file."
    )
    name: Name = Field(default="recipe", description="Name of the job; default: the file's name.")
    model: Annotated[
        Annotated[ShapeSection, Tag("shape")] | Annotated[PathText, Tag("preset")], Discriminator(_model_form)
    ] = Field(
        description="A preset, a size such as 13B, the path of a config.json, or the shape written out."
    )
    cluster: ClusterSection
    parallel: ParallelSection = Field(default_factory=ParallelSection)
    offload: OffloadSection = Field(default_factory=OffloadSection)
    batch: BatchSection
    train: TrainSection = Field(default_factory=TrainSection)
    optimizer: OptimizerSection = Field(default_factory=OptimizerSection)
    data: DataSection | None = Field(default=None, description="Default: the built-in corpus.")
    checkpoint: CheckpointSection = Field(default_factory=CheckpointSection)
    launch: LaunchSection = Field(default_factory=LaunchSection)
    monitor: MonitorSection = Field(default_factory=MonitorSection)
    trainer: TrainerName = Field(default="forge", description="Who runs on the ranks.")
    external: ExternalSection | None = Field(
        default=None, description="The program, with `trainer: external`."
    )
    profiles: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Named sets of changes, chosen with --profile."
    )
