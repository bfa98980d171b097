"""Text in, Megatron's indexed pair out: checked with megatron-core and with the trainers' reader."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from dsforge.base.errors import DsforgeError
from dsforge.data.corpus import standard_library_files
from dsforge.data.prepare import Prepared, builtin_corpus, prepare
from dsforge.data.tokenizer import END_OF_TEXT, load_tokenizer, train_bpe

TEXTS = ["The quick brown fox jumps over the lazy dog.\n" * 30, "Zwölf Boxkämpfer jagen Viktor.\n" * 20]


def _documents(prefix: Path) -> list[list[int]]:
    """Read a pair back with megatron-core."""
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    dataset = IndexedDataset(str(prefix), multimodal=False, mmap=True)
    return [dataset[index].tolist() for index in range(len(dataset))]


def _files(folder: Path) -> list[Path]:
    paths = [folder / f"{index}.txt" for index in range(len(TEXTS))]
    for path, text in zip(paths, TEXTS, strict=True):
        path.write_text(text, "utf-8")
    return paths


@pytest.fixture
def made(tmp_path: Path) -> Prepared:
    return prepare(_files(tmp_path), tmp_path / "out" / "corpus", vocab=300)


def fault_of(files: list[Path], prefix: Path, **options: object) -> DsforgeError:
    with pytest.raises(DsforgeError) as caught:
        prepare(files, prefix, **options)
    return caught.value


def test_megatron_reads_the_texts_back(made: Prepared):
    tokenizer = load_tokenizer(made.tokenizer)
    end = tokenizer.token_to_id(END_OF_TEXT)
    documents = _documents(made.prefix)
    assert made.documents == len(documents) == 2
    assert made.tokens == sum(map(len, documents))
    assert made.vocab <= 300
    for ids, text in zip(documents, TEXTS, strict=True):
        assert ids[-1] == end
        assert end not in ids[:-1]
        assert tokenizer.decode(ids[:-1]) == text
    assert sorted(path.name for path in made.prefix.parent.iterdir()) == [
        "corpus.bin",
        "corpus.idx",
        "corpus.tokenizer.json",
    ]


def test_the_trainers_reader_sees_the_same_stream(made: Prepared):
    from dsforge.train.reader import IndexedCorpus

    stream = [token for ids in _documents(made.prefix) for token in ids]
    seq_len = 16
    corpus = IndexedCorpus(made.prefix, seq_len, seed=1, vocab=made.vocab)
    # As in Megatron's GPT data set: samples overlap by the one token that is only a target.
    assert corpus.samples == (len(stream) - 1) // seq_len
    seen = {tuple(corpus.sample(index).tolist()) for index in range(corpus.samples)}
    starts = range(0, corpus.samples * seq_len, seq_len)
    assert seen == {tuple(stream[start : start + seq_len + 1]) for start in starts}


@pytest.mark.parametrize(
    "text", ["", " ", "naïve café", "日本語 😀", "tab\tand\r\nline", "\x00\x1b", "a" * 999]
)
def test_byte_level_bpe_round_trips(text: str):
    tokenizer = train_bpe(TEXTS, 280)
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_small_vocabularies_are_two_bytes_wide_and_large_ones_four(tmp_path: Path):
    made = prepare(_files(tmp_path), tmp_path / "small", vocab=300)
    assert (tmp_path / "small.bin").stat().st_size == 2 * made.tokens
    from tokenizers import Tokenizer, models

    tokens = {f"t{index}": index for index in range(10)} | {"far": 70_000, "[UNK]": 11}
    given = Tokenizer(models.WordLevel(tokens, unk_token="[UNK]"))
    given.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "far.txt").write_text("far")
    wide = prepare([tmp_path / "far.txt"], tmp_path / "wide", tokenizer=tmp_path / "tokenizer.json")
    # Twelve tokens, but the largest id decides the width and the vocabulary that a model needs.
    assert wide.vocab == 70_001
    assert _documents(tmp_path / "wide") == [[70_000]]
    assert (tmp_path / "wide.bin").stat().st_size == 4


def test_a_given_tokenizer_is_used_and_kept_beside_the_data(made: Prepared, tmp_path: Path):
    again = prepare(_files(tmp_path), tmp_path / "again", tokenizer=made.tokenizer)
    assert again.vocab == made.vocab
    assert (tmp_path / "again.bin").read_bytes() == Path(f"{made.prefix}.bin").read_bytes()
    assert json.loads(again.tokenizer.read_text()) == json.loads(made.tokenizer.read_text())


def test_jsonl_one_document_a_line(tmp_path: Path):
    lines = [json.dumps({"id": index, "body": text}) for index, text in enumerate(TEXTS)]
    source = tmp_path / "texts.jsonl"
    source.write_text("\ufeff" + "\n\n".join(lines) + "\n" + json.dumps({"body": "  "}) + "\n", "utf-8")
    made = prepare([source], tmp_path / "out", vocab=300, json_key="body")
    tokenizer = load_tokenizer(made.tokenizer)
    assert [tokenizer.decode(ids[:-1]) for ids in _documents(made.prefix)] == TEXTS


def test_a_folder_in_order_without_what_is_no_text(tmp_path: Path):
    tree = tmp_path / "tree"
    (tree / "b").mkdir(parents=True)
    (tree / "a.txt").write_text("first " * 20)
    (tree / "b" / "c.md").write_text("third " * 20)
    (tree / "b" / "a.md").write_text("second " * 20)
    (tree / "picture.png").write_bytes(b"\x89PNG\r\n\xff\xfe")
    (tree / ".hidden").write_text("hidden " * 20)
    (tree / "empty.txt").write_text("\n")
    made = prepare([tree], tmp_path / "out", vocab=260)
    tokenizer = load_tokenizer(made.tokenizer)
    read = [tokenizer.decode(ids[:-1]).split()[0] for ids in _documents(made.prefix)]
    assert read == ["first", "second", "third"]


@pytest.mark.parametrize(
    ("second_line", "message"),
    [
        (b"{broken", "not JSON"),
        (b'{"body": "x"}', "no text under key `text`"),
        (b'{"text": 3}', "no text under key `text`"),
        (b"[1]", "no text under key `text`"),
        (b'{"text": "caf\xe9"}', "not JSON"),
        (b'{"text": "\\ud800"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, second_line: bytes, message: str):
    source = tmp_path / "texts.jsonl"
    source.write_bytes(b'{"text": "fine"}\n' + second_line + b'\n{"text": "fine"}\n')
    fault = fault_of([source], tmp_path / "out", vocab=300)
    assert fault.code == "DSF054"
    assert fault.message.startswith(message)
    assert str(fault.place) == f"{source}:2:1"
    assert fault.hint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["texts.jsonl"]


def test_wrong_inputs(tmp_path: Path):
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    out = tmp_path / "out"
    assert fault_of([tmp_path / "nowhere"], out).code == "DSF053"
    assert fault_of([tmp_path / "empty.txt"], out).code == "DSF055"
    assert fault_of([], out).code == "DSF055"
    latin = fault_of([tmp_path / "latin.txt"], out)
    assert (latin.code, latin.message) == ("DSF053", "is not UTF-8 text (byte 3)")
    assert str(latin.place) == str(tmp_path / "latin.txt")
    assert fault_of([tmp_path / "empty.txt"], out, vocab=100).code == "DSF051"
    not_one = fault_of([tmp_path / "latin.txt"], out, tokenizer=tmp_path / "empty.txt")
    assert (not_one.code, str(not_one.place)) == ("DSF050", str(tmp_path / "empty.txt"))
    assert fault_of([tmp_path / "latin.txt"], out, tokenizer=tmp_path / "nowhere").code == "DSF050"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.txt", "latin.txt"]


def test_a_target_that_cannot_be_written(tmp_path: Path):
    files = _files(tmp_path)
    (tmp_path / "file").write_text("")
    for prefix in (tmp_path / "file" / "corpus", tmp_path / ("x" * 300), Path("/proc/corpus")):
        fault = fault_of(files, prefix, vocab=300)
        assert (fault.code, fault.exit_code) == ("DSF052", 3)


def test_a_failing_run_leaves_the_old_pair(tmp_path: Path):
    files = _files(tmp_path)
    prepare(files, tmp_path / "c", vocab=300)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("c.*")}
    (tmp_path / "bad.jsonl").write_text("{}\n")
    fault = fault_of(
        [*files, tmp_path / "bad.jsonl"],
        tmp_path / "c",
        tokenizer=tmp_path / "c.tokenizer.json",
        overwrite=True,
    )
    assert fault.code == "DSF054"
    assert {path.name: path.read_bytes() for path in tmp_path.glob("c.*")} == before
    assert not list(tmp_path.glob(".*"))


def test_the_builtin_corpus_is_made_once_for_a_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    prefix = builtin_corpus(100)
    assert prefix.is_relative_to(tmp_path / "dsforge")
    stamp = Path(f"{prefix}.idx").stat().st_mtime_ns
    assert builtin_corpus(100) == prefix
    assert Path(f"{prefix}.idx").stat().st_mtime_ns == stamp
    first = _documents(prefix)[0]
    assert max(first) < 100
    assert len(first) > 100
    assert builtin_corpus(50) != prefix


def test_the_built_in_corpus_holds_out_one_document_in_twenty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sources = standard_library_files()
    for vocab in (100, 300):
        prefix = builtin_corpus(vocab)
        trained, held_out = _documents(prefix), _documents(Path(f"{prefix}-valid"))
        assert len(held_out) == len(sources) // 20
        texts = [text for path in sources if (text := path.read_text()).strip()]
        assert len(trained) + len(held_out) == len(texts)
        assert not {tuple(one) for one in held_out} & {tuple(one) for one in trained}
    by_hand = [byte % 100 for byte in sources[19].read_bytes()]
    assert _documents(Path(f"{builtin_corpus(100)}-valid"))[0] == by_hand


def test_a_built_in_corpus_without_its_held_out_part_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    held_out = Path(f"{builtin_corpus(50)}-valid.idx")
    held_out.unlink()
    builtin_corpus(50)
    assert held_out.is_file()


def test_tokens_fit_the_model_that_the_plan_makes(made: Prepared):
    stored = np.fromfile(f"{made.prefix}.bin", np.uint16)
    assert int(stored.max()) < made.vocab


def test_a_data_set_is_not_replaced_unasked(tmp_path: Path):
    files = _files(tmp_path)
    prepare(files, tmp_path / "c", vocab=300)
    assert fault_of(files, tmp_path / "c", vocab=300).code == "DSF057"
    assert prepare(files, tmp_path / "c", vocab=290, overwrite=True).vocab == 290


@pytest.mark.parametrize("prefix", ["/", ".", "", "folder", "folder/.hidden", "bad\udcff"])
def test_a_prefix_that_names_no_files_is_refused(tmp_path: Path, prefix: str):
    (tmp_path / "folder").mkdir()
    target = tmp_path / prefix if prefix not in ("/", "") else Path(prefix)
    assert fault_of(_files(tmp_path), target, vocab=300).code == "DSF058"


def test_a_folder_is_read_without_pipes_and_without_the_data_set_made_of_it(tmp_path: Path):
    source = tmp_path / "text"
    source.mkdir()
    (source / "a.txt").write_text("some text")
    first = prepare([source], source / "out", vocab=300)
    os.mkfifo(source / "pipe")
    again = prepare([source], source / "out", vocab=300, overwrite=True)
    assert (first.documents, first.tokens) == (again.documents, again.tokens) == (1, first.tokens)
    assert fault_of([source / "pipe"], tmp_path / "c", vocab=300).message == "not a regular file"
