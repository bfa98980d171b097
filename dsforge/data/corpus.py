"""The built-in corpus: the Python standard library's sources, real text found on every machine."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

from dsforge.base.canonical import sha256_text

_SKIP = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idlelib", "lib2to3"}
_MAX_FILES = 400
"""Enough for a few million tokens; more only makes the tokenizer slower to train."""


HOLD_OUT_EVERY = 20
"""One document in so many is validated on and never trained on."""


def split(files: list[Path]) -> tuple[list[Path], list[Path]]:
    """Return the files that are trained on and those that are held out, the last of every twenty."""
    held_out = files[HOLD_OUT_EVERY - 1 :: HOLD_OUT_EVERY]
    return [path for path in files if path not in set(held_out)], held_out


def standard_library_files() -> list[Path]:
    """Return the first source files of the running interpreter's standard library, by name."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(set(subfolders) - _SKIP)
        found += [Path(folder, name) for name in sorted(names) if name.endswith(".py")]
    return sorted(found)[:_MAX_FILES]


def corpus_key(vocab: int, files: list[Path]) -> str:
    """Return a name that differs when the vocabulary, the interpreter or its sources do."""
    sizes = f"{HOLD_OUT_EVERY}:" + ",".join(f"{path}:{path.stat().st_size}" for path in files)
    return f"stdlib-v{vocab}-{sha256_text(sizes)[:12]}"
