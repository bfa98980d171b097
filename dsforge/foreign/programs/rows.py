"""Rows of the embedding that a script's checkpoint has, against those of the recipe that is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsforge.base.errors import DsforgeError
from dsforge.external.vocabulary import OPTION, divisor_that_keeps, passed_divisor
from dsforge.foreign.programs.said import Said, Solved
from dsforge.layout.shape import padded_vocab


def check_rows(
    flavour: str,
    said: Mapping[str, Said],
    found: Mapping[str, Solved],
    vocab: Any,
    given: Mapping[str, Any],
) -> None:
    """Refuse another TP for a script that loads a checkpoint, where that pads the vocabulary otherwise.

    `given`: what the recipe is to have otherwise than the script. DsforgeError DSF698.
    """
    load, tp, now = said.get("--load"), found.get("parallel.tp"), given.get("parallel.tp")
    if load is None or not load.given or tp is None:
        return
    if not isinstance(now, int) or not isinstance(vocab, int) or now < 1 or tp.value < 1:
        return
    passed = given.get("external.arguments")
    divisor = max(1, int(said[OPTION].value))
    otherwise = passed_divisor(flavour, passed) if isinstance(passed, list) else None
    was, rows = padded_vocab(vocab, tp.value, divisor), padded_vocab(vocab, now, otherwise or divisor)
    if was == rows:
        return
    keeps = divisor_that_keeps(was, vocab, now, divisor * tp.value)
    raise DsforgeError(
        "DSF698",
        f"what `--load` names has a vocabulary padded to {was} rows under TP {tp.value}; under TP {now} the "
        f"program pads it to {rows}",
        load.place,
        f"keep TP {tp.value}" + (f", or pass on `{OPTION} {keeps}` in external.arguments" if keeps else ""),
    )
