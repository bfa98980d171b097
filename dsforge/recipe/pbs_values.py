"""Values that end in `#PBS` lines, which qsub reads without a shell: nothing in them can end a line."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from dsforge.recipe import patterns

_OWN = ("host", "mpiprocs", "ncpus", "ngpus", "ompthreads", "select", "vnode", "walltime")
"""Resources that the script asks for from the recipe's other keys, or that would choose its hosts."""

PbsName = Annotated[str, Field(strict=True, max_length=200, pattern=patterns.PBS_NAME)]
"""Name of a queue, a project or an account."""


def _other(value: Any) -> Any:
    if value in _OWN:
        raise ValueError("is a resource that the script asks for from the recipe's other keys")
    return value


PbsResource = Annotated[
    str, Field(strict=True, max_length=100, pattern=patterns.PBS_NAME), AfterValidator(_other)
]
"""Name of a further resource of a chunk: `mem`, `gpu_type`."""

PbsValue = Annotated[str, Field(strict=True, max_length=200, pattern=patterns.PBS_VALUE)]
"""Amount or value of a resource: `400gb`, `True`."""
