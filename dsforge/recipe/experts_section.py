"""The section of a model's experts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dsforge.base.limits import MOST_EXPERTS
from dsforge.recipe.quantities import Count, Flag, PositiveCount
from dsforge.recipe.section import Section


class ExpertsSection(Section):
    """The experts of a model's layers, in the place of one MLP each."""

    count: Annotated[PositiveCount, Field(le=MOST_EXPERTS)] = Field(description="Experts of a layer.")
    active: PositiveCount = Field(description="Experts that a token is sent to.")
    ffn_hidden: PositiveCount = Field(description="Width of an expert.")
    normalised: Flag = Field(
        default=True,
        description="The chosen experts' shares of a token add up to 1; false: they are those among all.",
    )
    dense_layers: tuple[Count, ...] = Field(
        default=(), description="Layers, counted from 0, that have an ordinary MLP instead."
    )
