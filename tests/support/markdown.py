"""Runs the commands of a page of documentation, in order, as a reader would.

An HTML comment right above a block says what is not seen in it:

    <!-- file NAME -->         the block is the text of a file; the commands below find it
    <!-- exits N -->           the commands end with this code; without it with 0
    <!-- output -->            the block is in what the commands before printed; `...` stands for anything
    <!-- starts ranks -->      real ranks: the page runs with the e2e tests
    <!-- not run: REASON -->   the commands are for reading
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

STARTS_RANKS = "starts ranks"
_NOTE = re.compile(r"<!-- (file \S+|exits \d+|output|starts ranks|not run: .+) -->")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, what the comments above it say, and its line from 1."""

    language: str
    text: str
    notes: tuple[str, ...]
    line: int

    def value(self, word: str) -> str | None:
        """Return what follows a word in the comments, "" if nothing does, None without the word."""
        for note in self.notes:
            if re.match(rf"{word}\b", note):
                return note.removeprefix(word).lstrip(": ")
        return None


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page; ValueError for a comment that says nothing known."""
    notes: list[str] = []
    for token in MarkdownIt().parse(text):
        if token.type == "html_block":
            for comment in token.content.splitlines():
                found = _NOTE.fullmatch(comment.strip())
                if not found:
                    raise ValueError(f"no such comment: {comment}")
                notes.append(found[1])
        elif token.type == "fence":
            assert token.map is not None, "a fence has lines"
            yield Block(token.info, token.content, tuple(notes), token.map[0] + 1)
            notes = []
        elif token.content and notes:
            raise ValueError(f"no block follows the comment: {notes}")


def run_page(page: Path, folder: Path, environ: Mapping[str, str]) -> int:
    """Run a page's commands in a folder and return how many blocks ran; AssertionError where one differs."""
    printed, ran = "", 0
    for block in blocks(page.read_text("utf-8")):
        at = f"{page.name}:{block.line}"
        name = block.value("file")
        if name:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(block.text, "utf-8")
        elif block.value("output") is not None:
            parts = (re.escape(part) for part in block.text.rstrip("\n").split("..."))
            assert re.search(".*?".join(parts), printed, re.DOTALL), f"{at}: printed was\n{printed}"
        elif block.language == "bash" and block.value("not run") is None:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text],
                cwd=folder,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            printed, ran = done.stdout, ran + 1
            assert done.returncode == int(block.value("exits") or 0), f"{at}: printed was\n{printed}"
    return ran
