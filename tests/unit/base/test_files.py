"""Files are whole or not there; canonical JSON is the same bytes everywhere."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dsforge.base.canonical import dump_line, dumps, sha256_text, sha256_value
from dsforge.base.files import append_line, write_atomically


def test_written_whole_with_its_mode(tmp_path: Path):
    target = tmp_path / "new" / "file.sh"
    write_atomically(target, "a\r\nb\n", mode=0o755)
    assert target.read_bytes() == b"a\r\nb\n"
    assert target.stat().st_mode & 0o777 == 0o755
    assert [path.name for path in target.parent.iterdir()] == ["file.sh"]


def test_a_failing_flush_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    target = tmp_path / "state.json"
    write_atomically(target, "old")

    def refuse(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(target, "new")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_text_that_cannot_be_encoded_leaves_the_old_file(tmp_path: Path):
    target = tmp_path / "state.json"
    write_atomically(target, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(target, "new \ud800")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_folder_in_the_way_is_an_error(tmp_path: Path):
    (tmp_path / "target").mkdir()
    with pytest.raises(OSError, match="target"):
        write_atomically(tmp_path / "target", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_lines_of_several_writers_never_mix(tmp_path: Path):
    stream = tmp_path / "ranks.jsonl"

    def write(rank: int) -> None:
        for _ in range(200):
            append_line(stream, str(rank) * 2000 + "\n")

    writers = [threading.Thread(target=write, args=(rank,)) for rank in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    lines = stream.read_text().splitlines()
    assert len(lines) == 800
    assert all(len(line) == 2000 and len(set(line)) == 1 for line in lines)


def test_canonical_json_sorts_keys_and_refuses_nan():
    assert dumps({"b": 1, "a": [1.5, "é"]}) == '{\n  "a": [\n    1.5,\n    "é"\n  ],\n  "b": 1\n}\n'
    assert sha256_value({"b": 1, "a": 2}) == sha256_value({"a": 2, "b": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        dumps({"loss": float("nan")})


def test_a_stream_line_is_one_line():
    assert dump_line({"b": "two\nlines", "a": 1}) == '{"b":"two\\nlines","a":1}\n'


def test_the_hash_is_sha256_of_utf8():
    assert sha256_text("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert sha256_text("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_text("\ud800") != sha256_text("")
