"""Which tensors stand in which *.safetensors of a folder, read from the files' headers alone.

A file begins with the length of its header, 8 bytes little-endian, then the header: a JSON object of name to
dtype, shape and the span of its bytes behind the header (https://huggingface.co/docs/safetensors).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from dsforge.base.json_file import parse_object, read_object

WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
_MOST_INDEX_BYTES = 64 << 20
_MOST_HEADER_BYTES = 100_000_000
"""The format's own limit."""
_LENGTH_BYTES = 8
_MOST_NAMED = 4
_TRAINED = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Types that weights can start from, and their bytes."""
_IDLE = (
    *(".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias"),
    ".rotary_emb.inv_freq",
)
"""Masks and tables that older versions of transformers saved beside the weights."""
_OTHER_NAMES = {"lm_head.weight": "embed_out.weight", "embed_out.weight": "lm_head.weight"}
"""A tensor of GPT-NeoX has one name in transformers' class and another in files."""


class Unreadable(Exception):  # noqa: N818 - as NotWhole: what is wrong, not that something is
    """A file cannot be read; `path` and `why`."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path, self.why = path, why


class Unfit(Exception):  # noqa: N818 - as above
    """The files are not the wanted model's; its text is the first of several faults."""

    def __init__(self, faults: list[str]) -> None:
        more = f" and {len(faults) - _MOST_NAMED} more" if len(faults) > _MOST_NAMED else ""
        super().__init__("; ".join(faults[:_MOST_NAMED]) + more)


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor in a file. `dtype`: the format's word for it."""

    path: Path
    dtype: str
    shape: tuple[int, ...]


def find_tensors(folder: Path) -> dict[str, Held]:
    """Return name to tensor of the files that the index names, each from its own file, else of the one file.

    Unreadable for a file that is not there or not whole, Unfit for a tensor that its file lacks or that
    stands twice.
    """
    index = folder / INDEX_NAME
    if index.exists():
        return _indexed(folder, index)
    if (folder / WEIGHTS_NAME).exists():
        return read_header(folder / WEIGHTS_NAME)
    found: dict[str, Held] = {}
    for path in sorted(folder.glob("*.safetensors")):
        for name, held in read_header(path).items():
            if name in found:
                raise Unfit([f"{name} stands in {found[name].path.name} and in {path.name}"])
            found[name] = held
    if not found:
        raise Unreadable(folder, "holds no *.safetensors")
    return found


def _indexed(folder: Path, index: Path) -> dict[str, Held]:
    try:
        where = read_object(index, _MOST_INDEX_BYTES).get("weight_map")
    except (OSError, ValueError) as error:
        raise Unreadable(index, _reason(error)) from error
    if not isinstance(where, dict) or not where:
        raise Unreadable(index, "`weight_map` is not an object of tensor to file")
    for name, file in where.items():
        # A name with a folder in it would be read from elsewhere.
        if not isinstance(file, str) or not file.endswith(".safetensors") or Path(file).name != file:
            raise Unreadable(index, f"`weight_map` does not name a *.safetensors beside it for {name}")
    headers = {file: read_header(folder / file) for file in sorted(set(where.values()))}
    if absent := [f"{name} is not in {file}" for name, file in where.items() if name not in headers[file]]:
        raise Unfit(absent)
    return {name: headers[file][name] for name, file in where.items()}


def read_header(path: Path) -> dict[str, Held]:
    """Return name to tensor of one file; Unreadable when it is not whole."""
    try:
        header, data_bytes = _header(path)
        header.pop("__metadata__", None)
        return {name: _held(path, name, row, data_bytes) for name, row in header.items()}
    except (OSError, ValueError) as error:
        raise Unreadable(path, _reason(error)) from error


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Return a file's header and the number of bytes behind it."""
    if path.exists() and not path.is_file():
        raise ValueError("not a regular file")
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        if not 0 < length <= min(_MOST_HEADER_BYTES, size - _LENGTH_BYTES):
            raise ValueError("not a whole safetensors file")
        return parse_object(stream.read(length)), size - _LENGTH_BYTES - length


def _held(path: Path, name: str, row: Any, data_bytes: int) -> Held:
    if not isinstance(row, dict) or not isinstance(row.get("dtype"), str):
        raise ValueError(f"the header does not describe {name}")
    shape, span = row.get("shape"), row.get("data_offsets")
    if not _counts(shape) or not _counts(span) or len(span) != 2 or span[0] > span[1]:
        raise ValueError(f"the header does not describe {name}")
    if span[1] > data_bytes:
        raise ValueError(f"truncated: {name} ends {span[1] - data_bytes} bytes behind the file")
    dtype = row["dtype"]
    if dtype in _TRAINED and math.prod(shape) * _TRAINED[dtype] != span[1] - span[0]:
        raise ValueError(f"{name} has other bytes than its shape needs")
    return Held(path, dtype, tuple(shape))


def _counts(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _reason(error: Exception) -> str:
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return told.partition("\n")[0]


def matched(
    held: Mapping[str, Held], wanted: Mapping[str, tuple[int, ...]], prefix: str, tied: Iterable[str]
) -> dict[str, str]:
    """Return each wanted tensor's name in the files, which may be older or lack the prefix of the bare model.

    `tied`: names under which a file may hold a wanted tensor once more. Unfit when a tensor is missing, left
    over, of another shape or of a type that does not train.
    """
    names = {
        name: next(
            (one for one in (name, _OTHER_NAMES.get(name, name)) if one in held),
            name.removeprefix(f"{prefix}."),
        )
        for name in wanted
    }
    faults = [f"{name} is missing" for name in wanted if names[name] not in held]
    for name, shape in wanted.items():
        found = held.get(names[name])
        if found is not None and found.shape != shape:
            faults.append(f"{name} has shape {list(found.shape)}, not {list(shape)}")
    used, again = set(names.values()), set(tied)
    for name in sorted(held):
        if name not in used and name not in again:
            if not f".{name}".endswith(_IDLE):
                faults.append(f"{name} is no parameter of the model")
        elif held[name].dtype not in _TRAINED:
            faults.append(f"{name} is of type {held[name].dtype}, not one of {', '.join(_TRAINED)}")
    if faults:
        raise Unfit(faults)
    return names
