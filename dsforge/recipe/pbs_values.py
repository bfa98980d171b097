"""Values that end in `#PBS` lines, which qsub reads without a shell: nothing in them can end a line."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from dsforge.recipe import patterns
from dsforge.recipe.quantities import Quoted

_OWN = ("host", "mpiprocs", "ncpus", "ngpus", "ompthreads", "select", "vnode", "walltime")
"""Resources that the script asks for from the recipe's other keys, or that would choose its hosts."""

PbsName = Annotated[str, Field(strict=True, max_length=200, pattern=patterns.PBS_NAME)]
"""Name of a queue, a project or an account."""


def _other(value: str) -> str:
    if value.lower() in _OWN:  # PBS tells no case apart
        raise ValueError("is a resource that the script asks for from the recipe's other keys")
    return value


PbsResource = Annotated[
    str, Field(strict=True, max_length=100, pattern=patterns.PBS_RESOURCE), AfterValidator(_other)
]
"""Name of a further resource of a chunk: `mem`, `gpu_type`."""

PbsValue = Annotated[str, Field(strict=True, max_length=200, pattern=patterns.PBS_VALUE), Quoted]
"""Amount or value of a resource: `400gb`, `True`."""


def _once(resources: dict[str, str]) -> dict[str, str]:
    names = [name.lower() for name in resources]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"has `{twice}` twice: PBS tells no case apart")
    return resources


PbsResources = Annotated[dict[PbsResource, PbsValue], AfterValidator(_once)]
"""Further resources of a chunk by name."""
