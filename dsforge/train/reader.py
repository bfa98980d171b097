"""Reads Megatron's indexed data sets (`.bin` and `.idx`) and says which tokens a sample of one set is.

The `.idx` file, little-endian: magic, u64 version 1, u8 code of the token type, u64 sequences S, u64 D,
i32[S] lengths, i64[S] byte positions, i64[D] document indices (megatron-core,
`core/datasets/indexed_dataset.py`). Sample i of an epoch is the seq_len + 1 tokens from k x seq_len of the
concatenated stream, k the i-th number of the epoch's shuffled order, which depends on the seed and the epoch
alone.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.plan.types import Batch
from dsforge.train.shuffle import shuffle_key, shuffled

MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")
_TYPES = {
    1: np.uint8,
    2: np.int8,
    3: np.int16,
    4: np.int32,
    5: np.int64,
    6: np.float64,
    7: np.float32,
    8: np.uint16,
}

_BLOCK_BYTES = 1 << 20

Tokens = NDArray[np.int64]


def _fault(code: str, path: Path, message: str, hint: str) -> DsforgeError:
    return DsforgeError(code, message, Place(file=str(path)), hint, ExitCode.BEFORE_FIRST_STEP)


@dataclass(frozen=True, slots=True)
class Index:
    """The contents of an `.idx` file: lengths in tokens, positions in bytes."""

    dtype: np.dtype
    lengths: NDArray[np.int32]
    positions: NDArray[np.int64]
    documents: NDArray[np.int64]


def read_index(path: Path) -> Index:
    """Return an `.idx` file's contents; DsforgeError when it is missing, torn or of another kind."""
    hint = "make it with `dsforge data prep`"
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise _fault("DSF320", path, f"cannot be read: {error.strerror}", hint) from error
    if len(raw) < _HEADER.size or raw[:9] != MAGIC:
        raise _fault("DSF321", path, "is not an index of a Megatron data set: wrong magic", hint)
    _, version, code, sequences, documents = _HEADER.unpack_from(raw)
    if version != 1 or code not in _TYPES:
        raise _fault("DSF321", path, f"has version {version} and token type {code}", hint)
    if _TYPES[code] in (np.float32, np.float64):
        raise _fault("DSF321", path, "holds floating-point numbers, not token ids", hint)
    needed = _HEADER.size + 12 * sequences + 8 * documents
    if len(raw) != needed:
        what = "is truncated" if len(raw) < needed else "has bytes that belong to nothing"
        raise _fault("DSF322", path, f"{what}: {len(raw)} bytes, its header speaks of {needed}", hint)
    lengths = np.frombuffer(raw, "<i4", sequences, _HEADER.size)
    positions = np.frombuffer(raw, "<i8", sequences, _HEADER.size + 4 * sequences)
    ends = np.frombuffer(raw, "<i8", documents, _HEADER.size + 12 * sequences)
    if (wrong := _inconsistency(lengths, ends)) is not None:
        raise _fault("DSF322", path, wrong, hint)
    return Index(np.dtype(_TYPES[code]).newbyteorder("<"), lengths, positions, ends)


def _inconsistency(lengths: NDArray[np.int32], documents: NDArray[np.int64]) -> str | None:
    if (lengths < 0).any():
        at = int((lengths < 0).argmax())
        return f"sequence {at} has a length of {lengths[at]}"
    if not len(documents) or documents[0] != 0 or documents[-1] != len(lengths):
        return f"its documents do not span its {len(lengths)} sequences"
    falls = documents[1:] < documents[:-1]
    if falls.any():
        at = int(falls.argmax()) + 1
        return f"document {at} starts at sequence {documents[at]}, before the one in front of it"
    return None


class IndexedCorpus:
    """The token stream of one data set, mapped into memory, and the order of its samples."""

    def __init__(self, prefix: Path, seq_len: int, seed: int, vocab: int) -> None:
        self.bin_path = Path(f"{prefix}.bin")
        self.seq_len = seq_len
        self.seed = seed
        self.vocab = vocab
        self.index_path = Path(f"{prefix}.idx")
        index = read_index(self.index_path)
        total = self.tokens = int(index.lengths.sum(dtype=np.int64))
        self._stream = self._map(index, total)
        self.samples = max(total - 1, 0) // seq_len
        if self.samples == 0:
            raise _fault(
                "DSF324",
                self.bin_path,
                f"holds {total} tokens, too few for one sample of {seq_len} + 1",
                "use more data or a smaller batch.seq_len",
            )

    def _map(self, index: Index, total: int) -> NDArray[np.integer]:
        width = index.dtype.itemsize
        expected = np.concatenate([[0], np.cumsum(index.lengths, dtype=np.int64)[:-1]]) * width
        if total and not np.array_equal(index.positions, expected):
            message = "its sequences do not lie one after another in the .bin file"
            raise _fault("DSF322", self.index_path, message, "make it with `dsforge data prep`")
        try:
            size = self.bin_path.stat().st_size
            if size != total * width:
                what = "is truncated" if size < total * width else "is longer than its index says"
                raise _fault(
                    "DSF323",
                    self.bin_path,
                    f"{what}: {size} bytes, the index speaks of {total * width}",
                    "copy both files again or make them again with `dsforge data prep`",
                )
            if total == 0:
                return np.empty(0, index.dtype)
            return np.memmap(self.bin_path, index.dtype, "r", shape=(total,))
        except OSError as error:
            hint = "the .bin and the .idx file go together"
            raise _fault("DSF320", self.bin_path, f"cannot be read: {error.strerror}", hint) from error

    def fingerprint(self) -> str:
        """Return a BLAKE2b of the whole `.idx` and of head, middle and tail of the `.bin`, 1 MiB each.

        Cheap for any size of data; other texts of the same token counts differ in one of the blocks.
        DsforgeError when a file cannot be read.
        """
        path = self.index_path
        try:
            digest = hashlib.blake2b(path.read_bytes(), digest_size=16)
            path = self.bin_path
            size = path.stat().st_size
            with path.open("rb") as stream:
                for start in (0, size // 2, max(0, size - _BLOCK_BYTES)):
                    stream.seek(start)
                    digest.update(stream.read(_BLOCK_BYTES))
        except OSError as error:
            hint = "the data must stay where they are while a run uses them"
            raise _fault("DSF320", path, f"cannot be read: {error.strerror}", hint) from error
        return digest.hexdigest()

    def sample(self, place: int) -> Tokens:
        """Return the seq_len + 1 tokens of a place in this set's order, which counts on over the epochs."""
        epoch, place = divmod(place, self.samples)
        start = shuffled(place, self.samples, shuffle_key(self.seed, epoch)) * self.seq_len
        tokens = np.asarray(self._stream[start : start + self.seq_len + 1], np.int64)
        wrong = (tokens < 0) | (tokens >= self.vocab)
        if wrong.any():
            at = int(wrong.argmax())
            raise _fault(
                "DSF325",
                self.bin_path,
                f"token {start + at} is {tokens[at]}, the model's vocabulary has {self.vocab} entries",
                "use the tokenizer that the data was made with, or a model of its vocabulary",
            )
        return tokens


def batch_ids(batch: Batch, dp: int, replica: int, step: int, micro: int) -> range:
    """Return the sample ids of one micro-batch of a replica; step and micro count from 0.

    Step s trains on ids [s x G, (s + 1) x G) whatever the layout.
    """
    start = step * batch.global_size + (micro * dp + replica) * batch.micro
    return range(start, start + batch.micro)
