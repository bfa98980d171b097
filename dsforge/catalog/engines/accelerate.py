"""What Accelerate's launcher takes, read from its data file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

from ruamel.yaml import YAML


@dataclass(frozen=True, slots=True)
class AccelerateKeys:
    """Top-level keys, the values of two of them, and the keys of the DeepSpeed section."""

    version: str
    keys: tuple[str, ...]
    distributed_types: tuple[str, ...]
    mixed_precisions: tuple[str, ...]
    deepspeed_config: tuple[str, ...]
    default_zero_stage: int


@cache
def accelerate_keys() -> AccelerateKeys:
    """Return the catalogue's version."""
    text = resources.files("dsforge.catalog.engines").joinpath("accelerate.yaml").read_text("utf-8")
    rows = YAML(typ="safe", pure=True).load(text)
    return AccelerateKeys(
        version=rows["version"],
        keys=tuple(rows["keys"]),
        distributed_types=tuple(rows["distributed_types"]),
        mixed_precisions=tuple(rows["mixed_precisions"]),
        deepspeed_config=tuple(rows["deepspeed_config"]),
        default_zero_stage=rows["default_zero_stage"],
    )
