"""A section of a recipe that only one launcher reads, under another one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from dsforge.base.errors import Fix
from dsforge.recipe.sections import LaunchSection
from dsforge.recipe.vocabulary import removal
from dsforge.rules.registry import Found


def ignored(scheduler: Literal["slurm", "kubernetes", "pbs"], launch: LaunchSection) -> Iterator[Found]:
    """Yield what is written in the section of a launcher that is not the recipe's."""
    section = getattr(launch, scheduler)
    default = type(section)()
    written = [key for key in type(section).model_fields if getattr(section, key) != getattr(default, key)]
    for key in written[:1]:
        yield Found(
            f"launch.{scheduler} would be ignored: the launcher is {launch.launcher}",
            f"launch.{scheduler}.{key}",
            f"set launch.launcher to {scheduler}, or {removal(f'launch.{scheduler}')}",
            Fix("launch.launcher", scheduler),
        )
