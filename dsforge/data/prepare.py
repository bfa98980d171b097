"""Text files to Megatron's `.bin/.idx` pair and a tokenizer.json beside it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dsforge.base.caches import cache_root
from dsforge.base.canonical import loads
from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.data.corpus import corpus_key, split, standard_library_files
from dsforge.data.tokenizer import SMALLEST_VOCAB, end_of_text_id, load_tokenizer, train_bpe
from dsforge.records.corpus import HELD_OUT_SUFFIX

_UINT16_LIMIT = 65_500
"""Megatron stores tokens as uint16 below this vocabulary (megatron/core/datasets: DType.optimal_dtype)."""
_SUFFIXES = (".bin", ".idx", ".tokenizer.json")
_BATCH = 64
"""Documents encoded at once; the tokenizer works on all cores within a batch."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was written."""

    prefix: Path
    documents: int
    tokens: int
    vocab: int
    tokenizer: Path


def prepare(
    files: Sequence[Path],
    prefix: Path,
    *,
    tokenizer: Path | None = None,
    vocab: int = 32_768,
    json_key: str = "text",
    overwrite: bool = False,
) -> Prepared:
    """Write PREFIX.bin, PREFIX.idx and PREFIX.tokenizer.json from text, .jsonl files or folders.

    Each text file or JSON line is one document, ended by the end-of-text token. Files appear whole or
    not at all. DsforgeError DSF05x for unreadable input, empty input or an unwritable target.
    """
    _check_prefix(prefix)
    if not overwrite and os.access(f"{prefix}.idx", os.F_OK):
        raise DsforgeError("DSF057", f"{prefix}.idx exists", hint="another prefix, or --overwrite")
    sources = list(_expand(files, prefix))
    if tokenizer is not None:
        encoder = load_tokenizer(tokenizer)
    else:
        if vocab < SMALLEST_VOCAB:
            raise DsforgeError(
                "DSF051", f"a vocabulary of {vocab} cannot hold all bytes", hint=f"at least {SMALLEST_VOCAB}"
            )
        encoder = train_bpe(_documents(sources, json_key), vocab)
    try:
        return _write(encoder, _documents(sources, json_key), prefix)
    except OSError as error:
        raise DsforgeError(
            "DSF052",
            f"cannot write {prefix}: {error.strerror}",
            hint="choose a writable folder with free space; XDG_CACHE_HOME names the cache's",
            exit_code=ExitCode.ENVIRONMENT,
        ) from None


def builtin_prefix(vocab: int, files: list[Path]) -> Path:
    """Return where the built-in corpus of a vocabulary lies, whether or not it is there yet."""
    return cache_root(os.environ) / "corpus" / corpus_key(vocab, files) / "corpus"


def builtin_corpus(vocab: int) -> Path:
    """Return the prefix of the built-in corpus for a vocabulary, made on first use and then cached.

    Its held-out documents lie beside it, at the prefix with `HELD_OUT_SUFFIX`. Below 257 tokens the text is
    stored as bytes modulo the vocabulary: still real text, and every id is legal.
    """
    files = standard_library_files()
    prefix = builtin_prefix(vocab, files)
    held_out = Path(f"{prefix}{HELD_OUT_SUFFIX}")
    if all(Path(f"{one}{suffix}").exists() for one in (prefix, held_out) for suffix in (".idx", ".bin")):
        return prefix
    tokenizer: Path | None = None
    for part, target in zip(split(files), (prefix, held_out), strict=True):
        if vocab < SMALLEST_VOCAB:
            _write_bytes(list(_expand(part, target)), target, vocab)
        else:
            made = prepare(part, target, tokenizer=tokenizer, vocab=vocab, overwrite=True)
            tokenizer = made.tokenizer
    return prefix


@dataclass(frozen=True, slots=True)
class _Source:
    """A file to read; one found in a folder may be no text at all, one that was named must be."""

    path: Path
    named: bool


def _check_prefix(prefix: Path) -> None:
    """Refuse prefixes whose files would be hidden, nameless, or beside the folder that was meant."""
    name = prefix.name
    if not name or name.startswith(".") or _is_folder(prefix):
        raise DsforgeError(
            "DSF058", f"{str(prefix)!r} is no prefix of files", hint="FOLDER/NAME, for example -o data/corpus"
        )
    if any("\ud800" <= char <= "\udfff" for char in str(prefix)):
        raise DsforgeError("DSF058", f"{str(prefix)!r} is not UTF-8", hint="choose another name")


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False  # a name that no file can have: writing will say so


def _expand(files: Sequence[Path], prefix: Path) -> Iterator[_Source]:
    made = {Path(f"{prefix}{suffix}") for suffix in _SUFFIXES}
    for path in files:
        if path.is_dir():
            for folder, subfolders, names in os.walk(path):
                subfolders.sort()
                for name in sorted(names):
                    inside = Path(folder, name)
                    # A pipe would wait for ever, and a data set made before is no text of the corpus.
                    if not name.startswith(".") and inside.is_file() and inside not in made:
                        yield _Source(inside, named=False)
        elif path.is_file():
            yield _Source(path, named=True)
        else:
            what = "not a regular file" if path.exists() else "no such file or folder"
            raise DsforgeError("DSF053", what, Place(str(path)), "name existing text files")


def _documents(sources: Sequence[_Source], json_key: str) -> Iterator[str]:
    for source in sources:
        path = source.path
        try:
            if path.suffix in (".jsonl", ".ndjson"):
                yield from _json_documents(path, json_key)
            else:
                text = path.read_text("utf-8-sig", errors="strict")
                if text.strip():
                    yield text
        except UnicodeDecodeError as error:
            if source.named:
                message = f"is not UTF-8 text (byte {error.start})"
                raise DsforgeError("DSF053", message, Place(str(path)), "convert it to UTF-8") from None
            continue  # a picture or an archive in a source tree: not text
        except OSError as error:
            raise DsforgeError(
                "DSF053", f"cannot be read: {error.strerror}", Place(str(path)), "name readable text files"
            ) from None


def _json_documents(path: Path, key: str) -> Iterator[str]:
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, start=1):
            if raw.strip():
                text = _json_text(raw, key, Place(str(path), number, 1))
                if text.strip():
                    yield text


def _json_text(raw: bytes, key: str, place: Place) -> str:
    try:
        record = loads(raw.decode("utf-8-sig"))
        text = record.get(key) if isinstance(record, dict) else None
        if isinstance(text, str):
            text.encode()  # an escaped half of a surrogate pair is legal JSON and no text
    except ValueError as error:
        hint = "one JSON object a line, in UTF-8"
        raise DsforgeError("DSF054", f"not JSON: {error}", place, hint) from None
    if not isinstance(text, str):
        raise DsforgeError("DSF054", f"no text under key `{key}`", place, "name the key with --json-key")
    return text


def _batches(documents: Iterator[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for document in documents:
        batch.append(document)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _write(encoder: Any, documents: Iterator[str], prefix: Path) -> Prepared:
    # Not the number of tokens: a vocabulary may have gaps, and the largest id must fit.
    vocab = max(encoder.get_vocab().values(), default=0) + 1
    end = end_of_text_id(encoder)
    with _IndexedPair(prefix, vocab) as pair:
        for batch in _batches(documents):
            for encoding in encoder.encode_batch(batch, add_special_tokens=False):
                pair.add([*encoding.ids, *([end] if end is not None else [])])
        if not pair.documents:
            raise DsforgeError("DSF055", "no text in the given files", hint="name UTF-8 text or .jsonl files")
        tokenizer = Path(f"{prefix}.tokenizer.json")
        encoder.save(str(pair.staged(tokenizer)))
        pair.finish(tokenizer)
    return Prepared(prefix, pair.documents, pair.tokens, vocab, tokenizer)


def _write_bytes(sources: Sequence[_Source], prefix: Path, vocab: int) -> None:
    with _IndexedPair(prefix, vocab) as pair:
        for document in _documents(sources, "text"):
            pair.add([byte % vocab for byte in document.encode()])
        pair.finish()


class _IndexedPair:
    """Builds a pair with megatron-core's own writer under temporary names; `finish` renames."""

    def __init__(self, prefix: Path, vocab: int) -> None:
        import numpy as np

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of kernels that writing a file does not need
            from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

        prefix.parent.mkdir(parents=True, exist_ok=True)
        self.prefix = prefix
        self.documents = 0
        self.tokens = 0
        self._numpy = np
        self._type = np.uint16 if vocab < _UINT16_LIMIT else np.int32
        self._builder = IndexedDatasetBuilder(str(self.staged(Path(f"{prefix}.bin"))), dtype=self._type)

    def staged(self, path: Path) -> Path:
        """Return the temporary name of a file that is not finished."""
        return path.with_name(f".{path.name}.{os.getpid()}.partial")

    def add(self, ids: list[int]) -> None:
        """Append one document."""
        self._builder.add_document(self._numpy.array(ids, dtype=self._type), [len(ids)])
        self.documents += 1
        self.tokens += len(ids)

    def finish(self, *others: Path) -> None:
        """Write the index and give every file its name, the index last."""
        index = Path(f"{self.prefix}.idx")
        self._builder.finalize(str(self.staged(index)))
        index.unlink(missing_ok=True)  # an old index must never stand beside new tokens
        for path in (*others, Path(f"{self.prefix}.bin"), index):
            self.staged(path).replace(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._builder.data_file.close()
        for suffix in _SUFFIXES:
            self.staged(Path(f"{self.prefix}{suffix}")).unlink(missing_ok=True)
