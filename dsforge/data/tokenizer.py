"""A byte-level BPE: every text has tokens, none is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dsforge.base.errors import DsforgeError, Place

END_OF_TEXT = "<|endoftext|>"
_BYTES = 256
SMALLEST_VOCAB = _BYTES + 1
"""All bytes and the end-of-text mark."""


def train_bpe(texts: Iterable[str], vocab: int) -> Any:
    """Return a tokenizers.Tokenizer of at most `vocab` tokens; below 257 it is bytes alone, cut off."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    return tokenizer


def load_tokenizer(path: Path) -> Any:
    """Return a tokenizer from its tokenizer.json; DsforgeError DSF050 when it is not one."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the Rust library raises bare Exception for any fault
        raise DsforgeError(
            "DSF050", f"not a tokenizer.json: {error}", Place(str(path)), "name a Hugging Face tokenizer.json"
        ) from None


def end_of_text_id(tokenizer: Any) -> int | None:
    """Return the id that separates documents: the first known end mark of the vocabulary, if any."""
    for mark in (END_OF_TEXT, "</s>", "<|end_of_text|>", "<eos>", "<|eot_id|>"):
        found = tokenizer.token_to_id(mark)
        if found is not None:
            return int(found)
    return None
