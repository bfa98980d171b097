"""Looks at the data a recipe names before any rank starts."""

from __future__ import annotations

from collections.abc import Iterator
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


def check_data(plan: Plan, loaded: LoadedRecipe, root: Path) -> None:
    """Raise DsforgeError DSF045 when a pair is not there, DSF046 when a tokenizer does not fit."""
    for key, sets in (("data.train", plan.data.train), ("data.valid", plan.data.valid)):
        for at, one in enumerate(sets):
            _check_pair(root / one.prefix, one.prefix, loaded.place(f"{key}.{at}"))
            beside = Path(f"{root / one.prefix}.tokenizer.json")
            if plan.data.tokenizer is None and beside.is_file():
                _check_tokenizer(plan, loaded, beside)
    if plan.data.tokenizer is not None:
        _check_tokenizer(plan, loaded, root / plan.data.tokenizer)


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


def _check_tokenizer(plan: Plan, loaded: LoadedRecipe, path: Path) -> None:
    try:
        tokenizer = loads(read_bounded(path, _LARGEST_TOKENIZER))
        largest = max(_ids(tokenizer))
    except (OSError, ArithmeticError, ValueError, TypeError, KeyError) as error:
        raise DsforgeError(
            "DSF046",
            f"{path} is not a tokenizer.json with a vocabulary: {error}",
            loaded.place("data.tokenizer"),
            "name the tokenizer.json that `dsforge data prep` wrote beside the data",
            exit_code=ExitCode.ENVIRONMENT,
        ) from None
    if largest >= plan.model.vocab:
        raise DsforgeError(
            "DSF046",
            f"the tokenizer has id {largest}, the model's vocabulary is {plan.model.vocab}",
            loaded.place("model.vocab"),
            f"set model.vocab to at least {largest + 1}, or prepare the data with a smaller vocabulary",
            exit_code=ExitCode.FINDINGS,
        )


def _ids(tokenizer: Any) -> Iterator[int]:
    """Yield every token's id: a BPE or WordPiece vocabulary is a mapping, a Unigram one a list of pairs."""
    vocab = tokenizer["model"]["vocab"]
    yield from (int(number) for number in (vocab.values() if isinstance(vocab, dict) else range(len(vocab))))
    yield from (int(token["id"]) for token in tokenizer.get("added_tokens") or ())
