"""Looks at the data a recipe names before any rank starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsforge.base.canonical import loads
from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.base.files import read_bounded
from dsforge.base.shell import quote
from dsforge.plan.types import Plan
from dsforge.recipe.load import LoadedRecipe

_LARGEST_TOKENIZER = 256 * 2**20


@dataclass(frozen=True, slots=True)
class _Tokenizer:
    """A tokenizer.json: whose it is, its path from the recipe's folder, the id of every token."""

    of: str
    written: str
    place: Place
    ids: dict[str, int]
    largest: int


def check_data(plan: Plan, loaded: LoadedRecipe, root: Path) -> None:
    """Raise DsforgeError DSF045 when a pair is not there, DSF046 when a tokenizer does not fit.

    All sets share one tokenizer, as far as one lies beside them: the first is held to the model's vocabulary.
    """
    sets = [
        (key, one.prefix, loaded.place(f"{key}.{at}"))
        for key, named in (("data.train", plan.data.train), ("data.valid", plan.data.valid))
        for at, one in enumerate(named)
    ]
    # The pairs first: the command that makes one writes its tokenizer too.
    for _, prefix, place in sets:
        _check_pair(root / prefix, prefix, place)
    found = []
    if plan.data.tokenizer is not None:
        found.append(_read("data.tokenizer", plan.data.tokenizer, loaded.place("data.tokenizer"), root))
    for key, prefix, place in sets:
        beside = f"{prefix}.tokenizer.json"
        if (root / beside).is_file():
            found.append(_read(key, beside, place, root))
    if found:
        _check_vocabulary(plan, found[0])
    for other in found[1:]:
        _check_same(found[0], other)


def _check_pair(prefix: Path, written: str, place: Place) -> None:
    for suffix in (".idx", ".bin"):
        path = Path(f"{prefix}{suffix}")
        if not path.is_file():
            raise DsforgeError(
                "DSF045",
                f"no data file {path}",
                place,
                f"`dsforge data prep FILES -o {quote(written)}` beside the recipe makes it",
                exit_code=ExitCode.ENVIRONMENT,
            )


def _check_vocabulary(plan: Plan, tokenizer: _Tokenizer) -> None:
    if tokenizer.largest >= plan.model.vocab:
        raise _unfit(
            f"the tokenizer of {tokenizer.of}, {tokenizer.written}, has id {tokenizer.largest}, "
            f"the model's vocabulary is {plan.model.vocab}",
            tokenizer.place,
            f"set model.vocab to at least {tokenizer.largest + 1}, "
            "or prepare the data with a smaller vocabulary",
        )


def _check_same(first: _Tokenizer, other: _Tokenizer) -> None:
    """Tokenizers that number the same tokens alike may differ in the rest, such as the form of the file."""
    if other.ids != first.ids:
        prefix = other.written.removesuffix(".tokenizer.json")
        raise _unfit(
            f"the set {prefix} of {other.of} was made with another tokenizer than {first.written} "
            f"of {first.of}: the same number would be another token",
            other.place,
            f"the sets of a recipe share one: `dsforge data prep FILES -o {quote(prefix)} "
            f"--tokenizer {quote(first.written)} --overwrite`",
        )


def _read(of: str, written: str, place: Place, root: Path) -> _Tokenizer:
    try:
        ids = dict(_ids(loads(read_bounded(root / written, _LARGEST_TOKENIZER))))
        largest = max(ids.values())
    except (OSError, ArithmeticError, ValueError, TypeError, KeyError) as error:
        raise _unfit(
            f"{root / written}, the tokenizer of {of}, is not a tokenizer.json with a vocabulary: {error}",
            place,
            "name or put there the tokenizer.json that `dsforge data prep` wrote beside the data",
        ) from None
    return _Tokenizer(of, written, place, ids, largest)


def _unfit(message: str, place: Place, hint: str) -> DsforgeError:
    return DsforgeError("DSF046", message, place, hint, exit_code=ExitCode.ENVIRONMENT)


def _ids(tokenizer: Any) -> Iterator[tuple[str, int]]:
    """Yield every token's id: a BPE or WordPiece vocabulary is a mapping, a Unigram one a list of pairs."""
    vocab = tokenizer["model"]["vocab"]
    if isinstance(vocab, dict):
        yield from ((token, int(number)) for token, number in vocab.items())
    else:
        yield from ((str(token), number) for number, (token, _) in enumerate(vocab))
    yield from ((str(token["content"]), int(token["id"])) for token in tokenizer.get("added_tokens") or ())
