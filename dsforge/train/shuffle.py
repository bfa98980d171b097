"""A shuffled order that is computed, not stored: any place of it costs microseconds and no memory."""

from __future__ import annotations

import hashlib
import math

_WORD = (1 << 64) - 1
_ROUNDS = 4


def shuffle_key(seed: int, epoch: int) -> int:
    """Return the 64-bit key of the order in which an epoch takes its samples."""
    text = f"{seed}:{epoch}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def shuffled(place: int, size: int, key: int) -> int:
    """Return what stands at a place of a permutation of range(size): each number once, by key.

    A Feistel network over a rectangle of rows and columns, walked on while it leaves the range (Black and
    Rogaway 2002, "Ciphers with arbitrary finite domains"): the rectangle has at most 2 x sqrt(size) + 1
    cells more than the range.
    """
    rows = math.isqrt(size - 1) + 1
    columns = -(-size // rows)
    while True:
        row, column = divmod(place, columns)
        for turn in range(_ROUNDS):
            row = (row + _mixed(key, 2 * turn, column)) % rows
            column = (column + _mixed(key, 2 * turn + 1, row)) % columns
        place = row * columns + column
        if place < size:
            return place


def _mixed(key: int, turn: int, value: int) -> int:
    """Return 64 well-mixed bits: the finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    word = (key ^ value) + (turn + 1) * 0x9E3779B97F4A7C15 & _WORD
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
    return word ^ word >> 31
