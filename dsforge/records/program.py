"""`program.json`: the external program that every rank of a bundle runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dsforge.base.canonical import dumps, loads
from dsforge.records import environment
from dsforge.records.typed import build

FILE_NAME = "program.json"
SCHEMA_VERSION = 1
_PLACES = {
    "root": environment.ROOT,
    "checkpoints": environment.CHECKPOINT_DIR,
    "attempt": environment.ATTEMPT_DIR,
    "corpus": environment.CORPUS,
}
"""Where paths start from, by the variable that says where it is; `bundle` is the plan's own folder."""


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """What a rank starts and how it reads the output.

    `bases`: what an argument, by its index, is a path from; `configuration` is handed over in
    `configuration_option`, its paths by dotted key in `configuration_bases`. `patterns`: regular expressions
    by event, looked for in the output of `metrics_rank`, but `joined` in rank 0's. `stubs`: imports that
    stand-ins serve where they are missing, or without another package (MODULE:PACKAGE). `stand_ins`: what
    a name of PyTorch does where there is no CUDA. `tokens_per_step` counts the whole job; `eval_samples`
    those of a validation, None where the program is not told.
    """

    flavour: str
    folder: str
    entry: str
    arguments: tuple[str, ...]
    bases: dict[str, str]
    patterns: dict[str, str]
    metrics_rank: int
    tokens_per_step: int
    eval_samples: int | None = None
    stubs: tuple[str, ...] = ()
    stand_ins: dict[str, str] = field(default_factory=dict)
    configuration: dict[str, Any] | None = None
    configuration_bases: dict[str, str] = field(default_factory=dict)
    configuration_option: str | None = None
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> str:
        """Return the text of the file."""
        return dumps(asdict(self))


def read_program(path: Path) -> ProgramFile:
    """Return the program in a file; OSError, or ValueError when it is not one of this version."""
    try:
        found = build(ProgramFile, loads(path.read_text("utf-8")))
    except TypeError as error:
        raise ValueError(f"{path} names no program: {error}") from error
    if found.schema_version != SCHEMA_VERSION:
        raise ValueError(f"{path} is of version {found.schema_version}, this build reads {SCHEMA_VERSION}")
    return found


def resolve(text: str, base: str | None, environ: Mapping[str, str]) -> str:
    """Return a path as it is on this host; ValueError when nothing says where its base is."""
    if base is None:
        return text
    if base == "bundle":
        return str(Path(_variable(environ, environment.PLAN)).with_name(text))
    place = _variable(environ, _PLACES[base])
    # The corpus is the beginning of its files' names, the others are folders.
    return place + text if base == "corpus" else os.path.normpath(Path(place) / text)


def _variable(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name)
    if not value:
        raise ValueError(f"{name} is not set")
    return value
