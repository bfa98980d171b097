"""Variables that follow from the layout, each with its reason; the user's own win."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsforge.catalog.engines.flavours import flavour_of
from dsforge.catalog.tables import Hardware
from dsforge.external.expressions import evaluate
from dsforge.plan.program import program_of
from dsforge.recipe.settled import SettledRecipe


def derive_environment(
    recipe: SettledRecipe, hardware: Hardware, values: Mapping[str, Any]
) -> dict[str, tuple[str, str]]:
    """Return name -> (value, why) for variables that the recipe does not set itself.

    `values` are what the recipe says by name, asked for where it starts an external program.
    """
    wanted: dict[str, tuple[str, str]] = {}
    if hardware.accelerator == "cpu":
        wanted["DS_ACCELERATOR"] = ("cpu", "the recipe's gpu is cpu; keeps DeepSpeed from probing for others")
        wanted["OMP_NUM_THREADS"] = ("1", "one thread a rank, so that ranks do not fight over cores")
    elif recipe.parallel.tp > 1:
        reason = "TP overlaps its all-reduce with compute only when kernels keep their launch order"
        wanted["CUDA_DEVICE_MAX_CONNECTIONS"] = ("1", reason)
    if (section := program_of(recipe)) is not None:
        for name, variable in flavour_of(section.flavour).variables.items():
            if variable.when is not None and not evaluate(variable.when, values):
                continue
            value = evaluate(variable.value, values)
            whole = isinstance(value, float) and value.is_integer()
            wanted[name] = (str(int(value) if whole else value), variable.why)
    return {name: pair for name, pair in wanted.items() if name not in recipe.launch.env}
