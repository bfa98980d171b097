"""Which tokens a sample of the run is: data sets blended by weight, each in its own shuffled order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsforge.plan.types import DataSet, Plan
from dsforge.records.corpus import HELD_OUT_SUFFIX
from dsforge.train.blend import Blend
from dsforge.train.reader import IndexedCorpus, Tokens

VALIDATION_SEED = 0
"""Not the plan's: runs of other seeds are judged by the same samples."""
_ORDER = b"order 2"
"""Enters every fingerprint; another way of drawing the order needs another number."""

WeightedPrefix = tuple[float, Path]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the data sets of a run lie, with their weights."""

    train: tuple[WeightedPrefix, ...]
    valid: tuple[WeightedPrefix, ...]


def find_sources(plan: Plan, root: Path, builtin: Path | None) -> Sources:
    """Return a plan's data sets: prefixes from `root`, `builtin` for the built-in corpus."""
    if plan.data.builtin_vocab is not None:
        assert builtin is not None
        return Sources(((1.0, builtin),), ((1.0, Path(f"{builtin}{HELD_OUT_SUFFIX}")),))
    return Sources(_under(root, plan.data.train), _under(root, plan.data.valid))


def _under(root: Path, sets: Iterable[DataSet]) -> tuple[WeightedPrefix, ...]:
    return tuple((one.weight, root / one.prefix) for one in sets)


class Samples:
    """The samples of a blend by id: endless, the same in every layout, any of them at once.

    A set's samples come without replacement until it is used up, then again in another order.
    """

    def __init__(self, sources: Sequence[WeightedPrefix], seq_len: int, seed: int, vocab: int) -> None:
        self.sets = [IndexedCorpus(prefix, seq_len, seed, vocab) for _, prefix in sources]
        self.tokens = sum(one.tokens for one in self.sets)
        self._blend = Blend([weight for weight, _ in sources])

    def sample(self, sample_id: int) -> Tokens:
        """Return the seq_len + 1 tokens of a global sample id, counted from 0."""
        d = self._blend.set_at(sample_id)
        return self.sets[d].sample(self._blend.count(d, sample_id))

    def fingerprint(self) -> str:
        """Return a BLAKE2b of what is in the sets, in order; DsforgeError when a file cannot be read."""
        parts = [_ORDER, *(one.fingerprint().encode() for one in self.sets)]
        return hashlib.blake2b(b" ".join(parts), digest_size=16).hexdigest()


def training_samples(plan: Plan, sources: Sources) -> Samples:
    """Return what a plan trains on; step s, counted from 0, takes ids s x G to (s + 1) x G - 1."""
    return Samples(sources.train, plan.batch.seq_len, plan.train.seed, plan.model.vocab)


def validation_samples(plan: Plan, sources: Sources) -> Samples:
    """Return what a plan is validated on: every time ids 0 to `eval_samples` - 1."""
    return Samples(sources.valid, plan.batch.seq_len, VALIDATION_SEED, plan.model.vocab)
