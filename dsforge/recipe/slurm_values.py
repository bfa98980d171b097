"""Values that end in `#SBATCH` lines, which Slurm reads without a shell: nothing in them can end a line."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

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
