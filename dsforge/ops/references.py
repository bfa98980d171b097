"""Runs of one plain process that `verify` compares layouts with, each made once and kept in a folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dsforge.base.canonical import sha256_text
from dsforge.plan.types import Plan
from dsforge.records.close_calls import CloseCall

READ: dict[str, frozenset[str]] = {
    "model": frozenset({"name", "padded_vocab", "hf_config"}),
    "batch": frozenset({"accumulation_steps"}),
    "train": frozenset({"recompute", "recompute_every", "checks"}),
    "optimizer": frozenset(),
    "data": frozenset({"workers"}),
}
"""Sections of a plan that the reference reads, and the fields of each that it does not."""


def key(plan: Plan, corpus: str, other: Iterable[CloseCall] = ()) -> str:
    """Return what is the same for layouts of one model, batch and optimizer on one corpus, and else is not.

    `other`: the close calls that it decides the other way. Another version of the reference or of PyTorch
    computes another run.
    """
    read: dict[str, Any] = {
        section: getattr(plan, section).model_dump(mode="json", exclude=set(unread))
        for section, unread in READ.items()
    }
    read["other"] = [call.place for call in other]
    read |= {"corpus": corpus, "torch": metadata.version("torch"), "sources": _sources()}
    return sha256_text(json.dumps(read, sort_keys=True))


def _sources() -> list[str]:
    trainers = find_spec("dsforge.train")
    assert trainers is not None
    assert trainers.submodule_search_locations is not None
    folder = Path(trainers.submodule_search_locations[0])
    return [sha256_text(path.read_text("utf-8")) for path in sorted(folder.glob("*.py"))]


def kept(folder: Path, name: str, compute: Callable[[Path], None]) -> Path:
    """Return the folder of that name, computed unless it is there; a half-made one is nobody's."""
    whole = folder / name
    if not whole.is_dir():
        part = folder / f"{name}.{os.getpid()}"
        part.mkdir(parents=True)
        try:
            compute(part)
            part.rename(whole)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return whole
