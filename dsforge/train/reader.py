"""Reads Megatron's indexed data sets (`.bin` and `.idx`) and says which tokens a sample is.

The `.idx` file, little-endian: magic, u64 version 1, u8 code of the token type, u64 sequences S, u64 D, i32[S]
lengths, i64[S] byte positions, i64[D] document indices (Megatron-LM, `megatron/core/datasets/indexed_dataset.py`).
Sample i of an epoch is tokens [k x seq_len, (k + 1) x seq_len + 1) of the concatenated stream, k the i-th entry of
the epoch's permutation: the order depends on the seed and the epoch alone, never on the layout.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy
from numpy.typing import NDArray

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode

MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")
_TYPES = {
    1: numpy.uint8,
    2: numpy.int8,
    3: numpy.int16,
    4: numpy.int32,
    5: numpy.int64,
    6: numpy.float64,
    7: numpy.float32,
    8: numpy.uint16,
}

Tokens = NDArray[numpy.int64]


def _fault(code: str, path: Path, message: str, hint: str) -> DsforgeError:
    return DsforgeError(code, message, Place(file=str(path)), hint, ExitCode.BEFORE_FIRST_STEP)


@dataclass(frozen=True, slots=True)
class Index:
    """The contents of an `.idx` file: lengths in tokens, positions in bytes."""

    dtype: numpy.dtype
    lengths: NDArray[numpy.int32]
    positions: NDArray[numpy.int64]
    documents: NDArray[numpy.int64]


def read_index(path: Path) -> Index:
    """Return an `.idx` file's contents; DsforgeError when it is missing, torn or of another kind."""
    hint = "make it with `dsforge data prep`"
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise _fault("T020", path, f"cannot be read: {error.strerror}", hint) from error
    if len(raw) < _HEADER.size or raw[:9] != MAGIC:
        raise _fault("T021", path, "is not an index of a Megatron data set: wrong magic", hint)
    _, version, code, sequences, documents = _HEADER.unpack_from(raw)
    if version != 1 or code not in _TYPES:
        raise _fault("T021", path, f"has version {version} and token type {code}", hint)
    if _TYPES[code] in (numpy.float32, numpy.float64):
        raise _fault("T021", path, "holds floating-point numbers, not token ids", hint)
    needed = _HEADER.size + 12 * sequences + 8 * documents
    if len(raw) < needed:
        raise _fault("T022", path, f"is truncated: {len(raw)} bytes of {needed}", hint)
    lengths = numpy.frombuffer(raw, "<i4", sequences, _HEADER.size)
    positions = numpy.frombuffer(raw, "<i8", sequences, _HEADER.size + 4 * sequences)
    ends = numpy.frombuffer(raw, "<i8", documents, _HEADER.size + 12 * sequences)
    return Index(numpy.dtype(_TYPES[code]).newbyteorder("<"), lengths, positions, ends)


class IndexedCorpus:
    """The token stream of one data set, mapped into memory, and the order of its samples."""

    def __init__(self, prefix: Path, seq_len: int, seed: int, vocab: int) -> None:
        self.bin_path = Path(f"{prefix}.bin")
        self.seq_len = seq_len
        self.seed = seed
        self.vocab = vocab
        index = read_index(Path(f"{prefix}.idx"))
        total = int(index.lengths.sum(dtype=numpy.int64))
        self._stream = self._map(index, total)
        self.samples = max(total - 1, 0) // seq_len
        if self.samples == 0:
            raise _fault(
                "T024",
                self.bin_path,
                f"holds {total} tokens, too few for one sample of {seq_len} + 1",
                "use more data or a smaller batch.seq_len",
            )
        self._order: tuple[int, NDArray[numpy.int64]] | None = None

    def _map(self, index: Index, total: int) -> NDArray[numpy.integer]:
        width = index.dtype.itemsize
        expected = numpy.concatenate([[0], numpy.cumsum(index.lengths, dtype=numpy.int64)[:-1]]) * width
        if total and not numpy.array_equal(index.positions, expected):
            message = "its sequences do not lie one after another in the .bin file"
            raise _fault("T022", self.bin_path.with_suffix(".idx"), message, "make it with `dsforge data prep`")
        try:
            size = self.bin_path.stat().st_size
            if size < total * width:
                raise _fault(
                    "T023",
                    self.bin_path,
                    f"is truncated: {size} bytes, its index speaks of {total * width}",
                    "copy it again or make it again with `dsforge data prep`",
                )
            if total == 0:
                return numpy.empty(0, index.dtype)
            return numpy.memmap(self.bin_path, index.dtype, "r", shape=(total,))
        except OSError as error:
            hint = "the .bin and the .idx file go together"
            raise _fault("T020", self.bin_path, f"cannot be read: {error.strerror}", hint) from error

    def _permutation(self, epoch: int) -> NDArray[numpy.int64]:
        if self._order is None or self._order[0] != epoch:
            generator = numpy.random.Generator(numpy.random.PCG64([self.seed, epoch]))
            self._order = (epoch, generator.permutation(self.samples))
        return self._order[1]

    def sample(self, sample_id: int) -> Tokens:
        """Return the seq_len + 1 tokens of a global sample id, which counts on over the epochs."""
        epoch, position = divmod(sample_id, self.samples)
        start = int(self._permutation(epoch)[position]) * self.seq_len
        tokens = numpy.asarray(self._stream[start : start + self.seq_len + 1], numpy.int64)
        wrong = (tokens < 0) | (tokens >= self.vocab)
        if wrong.any():
            at = int(wrong.argmax())
            raise _fault(
                "T025",
                self.bin_path,
                f"token {start + at} is {tokens[at]}, the model's vocabulary has {self.vocab} entries",
                "use the tokenizer that the data was made with, or a model of its vocabulary",
            )
        return tokens


def batch_ids(step: int, micro: int, global_size: int, dp: int, replica: int, size: int) -> range:
    """Return the sample ids of one micro-batch of `size` samples; step and micro count from 0.

    Step s trains on ids [s x G, (s + 1) x G) whatever the layout.
    """
    start = step * global_size + (micro * dp + replica) * size
    return range(start, start + size)
