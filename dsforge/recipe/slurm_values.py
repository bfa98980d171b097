"""Values that end in `#SBATCH` lines, which Slurm reads without a shell: nothing in them can end a line."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from dsforge.recipe.quantities import DURATION_SCHEMA, Seconds

OWN_OPTIONS = (
    *("chdir", "cpus-per-task", "export", "export-file", "gpus-per-node", "job-name", "nodes", "no-requeue"),
    *("ntasks", "ntasks-per-node", "open-mode", "requeue", "signal", "wrap"),
    *("account", "constraint", "partition", "qos", "time"),
)
"""sbatch's long options that the rendered script sets, or that would undo what it sets."""

SlurmName = Annotated[str, Field(strict=True, max_length=200, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.,+-]*$")]
"""Name of a partition, an account or a quality of service, or several with commas."""

SlurmConstraint = Annotated[
    str, Field(strict=True, max_length=200, pattern=r"^[A-Za-z0-9_\[(][A-Za-z0-9_.,&|*()\[\]-]*$")
]
"""Features of nodes, in sbatch's syntax: `a100&ib`."""


def _own(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("--"):
        name = value[2:].partition("=")[0]
        # sbatch takes any beginning of an option that is the beginning of no other.
        taken = next((own for own in OWN_OPTIONS if name and own.startswith(name)), None)
        if taken is not None:
            raise ValueError(f"is --{taken}, which the script sets from the recipe's other keys")
    return value


SlurmOption = Annotated[
    str,
    Field(strict=True, max_length=500, pattern=r"^--[a-z][a-z0-9-]*(=[A-Za-z0-9_.,:/@%+&|()*\[\]-]+)?$"),
    BeforeValidator(_own),
]
"""Another option of sbatch in its long form: `--exclusive`, `--mail-type=END`."""

LONGEST_NOTICE_SECONDS = 65_535
"""Slurm's limit for the time of --signal."""

_SLURM_TIME = re.compile(
    r"(?:(?P<d>[0-9]+)-(?P<h>[0-9]{1,2})(?::(?P<m>[0-9]{2})(?::(?P<s>[0-9]{2}))?)?"
    r"|(?:(?P<hours>[0-9]+):(?P<mm>[0-9]{2})|(?P<minutes>[0-9]+)):(?P<ss>[0-9]{2}))"
)
"""Of the forms in sbatch(1), --time, all but plain minutes: a plain number is seconds in a recipe."""
_UNITS_SECONDS = {"d": 86_400, "h": 3600, "hours": 3600, "m": 60, "mm": 60, "minutes": 60, "s": 1, "ss": 1}


def _as_seconds(value: Any) -> Any:
    match = _SLURM_TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return value
    return float(sum(int(text) * _UNITS_SECONDS[unit] for unit, text in match.groupdict().items() if text))


SlurmTime = Annotated[
    Seconds,
    BeforeValidator(_as_seconds),
    WithJsonSchema(
        {
            "anyOf": [
                *DURATION_SCHEMA["anyOf"],
                {
                    "type": "string",
                    "pattern": "^([0-9]+-[0-9]{1,2}(:[0-9]{2}){0,2}|[0-9]+(:[0-9]{2}){1,2})$",
                    "examples": ["24:00:00"],
                },
            ]
        }
    ),
]
"""A duration, or one as sbatch takes it: `24:00:00`, `1-12`, `90:00` (minutes and seconds)."""
