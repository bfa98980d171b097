"""Values that end in `#SBATCH` lines, which Slurm reads without a shell: nothing in them can end a line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from dsforge.recipe import patterns
from dsforge.recipe.quantities import DURATION_SCHEMA, Seconds

OWN_OPTIONS = (
    *("account", "chdir", "constraint", "cpus-per-task", "export", "export-file", "gpus-per-node"),
    *("job-name", "no-requeue", "nodes", "ntasks", "ntasks-per-node", "open-mode", "partition", "qos"),
    *("requeue", "signal", "tasks-per-node", "time", "wrap"),
)
"""sbatch's long options that the rendered script sets, and their aliases."""

UNDOING_OPTIONS = (
    *("array", "cores-per-socket", "cpus-per-gpu", "distribution", "extra-node-info", "get-user-env"),
    *("gpu-bind", "gpus", "gpus-per-socket", "gpus-per-task", "help", "nodefile", "nodelist"),
    *("ntasks-per-core", "ntasks-per-gpu", "ntasks-per-socket", "overcommit"),
    *("sockets-per-node", "test-only", "threads-per-core", "tres-bind", "tres-per-job", "tres-per-node"),
    *("tres-per-socket", "tres-per-task", "usage", "version"),
)
"""sbatch's long options under which other ranks would start than the planned ones, elsewhere, or none."""

LAUNCH_OPTIONS = {
    "clusters": "sends the job where `dsforge runs` does not look for it",
    "error": "keeps words of the job out of the run's job.log",
    "output": "`dsforge launch` sets to the run's job.log",
    "parsable": "`dsforge launch` sets itself",
    "quiet": "keeps the job's id from `dsforge launch`",
    "wait": "keeps sbatch, and so `dsforge launch`, from answering before the job's end",
}
"""Those that would keep `dsforge launch` from its job, and what each of them does."""
_RESOURCES = "gres"

SlurmName = Annotated[str, Field(strict=True, max_length=200, pattern=patterns.SLURM_NAME)]
"""Name of a partition, an account or a quality of service, or several with commas."""

SlurmConstraint = Annotated[str, Field(strict=True, max_length=200, pattern=patterns.SLURM_CONSTRAINT)]
"""Features of nodes, in sbatch's syntax: `a100&ib`."""


_GPU = re.compile(r"(^|[,/])gpu\b", re.IGNORECASE)


def _meant(name: str, options: Sequence[str]) -> str | None:
    """Return the option that a name is, or is the beginning of: sbatch takes any that is clear."""
    if name in options:
        return name
    return next((option for option in options if name and option.startswith(name)), None)


def _own(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("--"):
        name, _, given = value[2:].partition("=")
        taken = _meant(name, (*OWN_OPTIONS, *UNDOING_OPTIONS, *LAUNCH_OPTIONS, _RESOURCES))
        if taken in OWN_OPTIONS:
            raise ValueError(f"is --{taken}, which the script sets from the recipe's other keys")
        if taken in UNDOING_OPTIONS:
            raise ValueError(f"is --{taken}, which would start other ranks than the planned ones")
        if taken in LAUNCH_OPTIONS:
            raise ValueError(f"is --{taken}, which {LAUNCH_OPTIONS[taken]}")
        if taken == _RESOURCES and _GPU.search(given):
            raise ValueError(f"is --{taken} for GPUs, which cluster.gpus_per_node asks for")
    return value


SlurmOption = Annotated[
    str,
    Field(strict=True, max_length=500, pattern=patterns.SLURM_OPTION),
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
