"""Variables that follow from the layout, each with its reason; the user's own win."""

from __future__ import annotations

from dsforge.catalog.tables import Hardware
from dsforge.recipe.model import Recipe


def derive_environment(recipe: Recipe, hardware: Hardware) -> dict[str, tuple[str, str]]:
    """Return name -> (value, why) for variables that the recipe does not set itself."""
    wanted: dict[str, tuple[str, str]] = {}
    if hardware.accelerator == "cpu":
        wanted["DS_ACCELERATOR"] = ("cpu", "the recipe's gpu is cpu; keeps DeepSpeed from probing for others")
        wanted["OMP_NUM_THREADS"] = ("1", "one thread a rank, so that ranks do not fight over cores")
    if recipe.parallel.tp > 1 and (hardware.accelerator != "cpu" or recipe.trainer == "external"):
        reason = "TP overlaps its all-reduce with compute only when kernels keep their launch order"
        if hardware.accelerator == "cpu":
            reason = "Megatron's parser asks for it where there is TP, on whatever device"
        wanted["CUDA_DEVICE_MAX_CONNECTIONS"] = ("1", reason)
    return {name: pair for name, pair in wanted.items() if name not in recipe.launch.env}
