"""`gpus.json`: which GPUs of each host a bundle's ranks take, where the recipe chooses some."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from dsforge.base.canonical import dumps, loads
from dsforge.records.typed import build

FILE_NAME = "gpus.json"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class ChosenGpus:
    """The GPUs of each host by node, in the order of its ranks, by the numbers that nvidia-smi gives them."""

    by_node: tuple[tuple[int, ...], ...]
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> str:
        """Return the text of the file."""
        return dumps(asdict(self))


def read_chosen_gpus(path: Path) -> ChosenGpus | None:
    """Return the choice in a file, None where there is none; OSError, ValueError for another kind of file."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    return parse_chosen_gpus(text)


def parse_chosen_gpus(text: str) -> ChosenGpus:
    """Return the choice in the text of a file; ValueError for one of no such kind."""
    try:
        found = build(ChosenGpus, loads(text))
    except TypeError as error:
        raise ValueError(f"{FILE_NAME} names no GPUs: {error}") from error
    if found.schema_version != SCHEMA_VERSION:
        raise ValueError(
            f"{FILE_NAME} is of version {found.schema_version}, this build reads {SCHEMA_VERSION}"
        )
    return found
