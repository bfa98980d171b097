"""Foreign files as text, and what kind of file a text is."""

from __future__ import annotations

import re
import shlex
from enum import StrEnum
from pathlib import Path

from dsforge.base.errors import DsforgeError, Finding, Place, Severity
from dsforge.base.files import read_bounded

_MAX_BYTES = 4 << 20
_HEAD = 1 << 16
"""Characters that a kind is told by: the top of the file says it."""


class Kind(StrEnum):
    """What `validate` takes.

    HF_TRAINER: DeepSpeed JSON in which the Trainer fills in every `auto`. MEGATRON: a script that starts it.
    CHECKOUT: a folder of its sources.
    """

    RECIPE = "recipe"
    DEEPSPEED = "deepspeed"
    HF_TRAINER = "hf-trainer"
    ACCELERATE = "accelerate"
    HOSTFILE = "hostfile"
    ENV = "env"
    MEGATRON = "megatron"
    NEOX = "neox"
    CHECKOUT = "checkout"


def read_foreign(path: Path) -> str:
    """Return a file's text, a byte-order mark included; DsforgeError DSF601 when it cannot be read."""
    place = Place(file=str(path))
    try:
        text = read_bounded(path, _MAX_BYTES)
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 text (byte {error.start})"
        raise DsforgeError("DSF601", reason, place, "name a text file") from None
    except (OSError, ValueError) as error:
        reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise DsforgeError("DSF601", reason, place, "name a readable file") from None
    if "\0" in text:
        raise DsforgeError("DSF601", "holds NUL bytes", place, "name a text file")
    return text


def carriage_returns(path: Path) -> Finding | None:
    """Return a finding where a script's lines end in CR LF, which reading as text hides; OSError."""
    before, found, _ = path.read_bytes()[:_MAX_BYTES].partition(b"\r")
    if not found:
        return None
    place = Place(str(path), before.count(b"\n") + 1, len(before) - before.rfind(b"\n"))
    message = "lines end with a carriage return: the shell takes it for a part of the last word of each"
    return Finding(
        "DSF609", Severity.ERROR, message, None, place, f"sed -i 's/\\r$//' {shlex.quote(path.name)}"
    )


_ACCELERATE = re.compile(r"^[ \t{]*\"?(distributed_type|compute_environment)\"?[ \t]*:", re.MULTILINE)
_NEOX_KEYS = (
    *(
        "pipe_parallel_size",
        "model_parallel_size",
        "num_layers",
        "hidden_size",
        "data_path",
        "train_data_paths",
    ),
    *("tokenizer_type", "vocab_file", "checkpoint_factor", "train_iters"),
)
_NEOX = re.compile(
    rf"^[ \t{{]*[\"']?({'|'.join(_NEOX_KEYS).replace('_', '[-_]')})[\"']?[ \t]*:", re.MULTILINE
)
_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
_SHELL = re.compile(r"#!.*\b(ba|z|da|)sh\b")
_RECIPE = re.compile(r"(?:^|[{,])[ \t]*\"?(version|model)\"?[ \t]*:", re.MULTILINE)
_HOST_LINE = re.compile(r"^[^\s=]+[ \t]+slots[ \t]*=", re.MULTILINE | re.IGNORECASE)


def kind_of(path: Path) -> Kind:
    """Return what a file looks like, by its name and then by its top; a recipe when nothing else."""
    name = path.name.lower()
    if name.endswith("deepspeed_env"):
        return Kind.ENV
    if "hostfile" in name and path.suffix not in (".yaml", ".yml", ".json"):
        return Kind.HOSTFILE
    if path.suffix.lower() in _SCRIPTS:
        return Kind.MEGATRON
    return _kind_by_top(path)


def _kind_by_top(path: Path) -> Kind:
    try:
        head = read_bounded(path, _MAX_BYTES)[:_HEAD]
    except (OSError, ValueError):
        return Kind.DEEPSPEED if path.suffix == ".json" else Kind.RECIPE
    if _ACCELERATE.search(head):
        return Kind.ACCELERATE
    if _SHELL.match(head):
        return Kind.MEGATRON
    if path.suffix in (".yaml", ".yml"):
        is_recipe = {match[1] for match in _RECIPE.finditer(head)} >= {"version", "model"}
        return Kind.NEOX if _NEOX.search(head) and not is_recipe else Kind.RECIPE
    if path.suffix == ".json" or head.lstrip("\ufeff \t\r\n").startswith(("{", "//", "/*")):
        is_recipe = {match[1] for match in _RECIPE.finditer(head)} >= {"version", "model"}
        return Kind.RECIPE if is_recipe else Kind.DEEPSPEED
    return Kind.HOSTFILE if _HOST_LINE.search(head) else Kind.RECIPE
