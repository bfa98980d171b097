"""Conversations with hosts over ssh before a run: questions go in, answers come out, all within a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import IO, Any, TypeVar

from dsforge.base.canonical import dump_line, loads
from dsforge.base.text import without_escapes
from dsforge.records.probe import ASKS, MARK
from dsforge.records.typed import build

T = TypeVar("T")
_LONGEST_LINE_BYTES = 16 * 2**20
_MOST_NOISE_BYTES = 2**20
"""Besides answers, in a whole conversation: a host that says more is not waited for."""
_MOST_LINES = 20
_END_SECONDS = 2.0
_LAST_SECONDS = 0.1
_NAMES = {kind: name for name, kind in ASKS.items()}


class SilenceError(Exception):
    """A host that gave no answer: the code its ssh ended with, None for one that was cut off; its words.

    `why`: what was wrong with what it said; None where it was only too slow.
    """

    def __init__(self, code: int | None, words: Sequence[str], why: str | None = None) -> None:
        super().__init__("no answer")
        self.code = code
        self.words = tuple(words)
        self.why = why


class _FloodError(Exception):
    """A host sends more than is read."""

    def __init__(self, most_bytes: int, where: str = "") -> None:
        super().__init__(f"it sends more than {most_bytes >> 20} MiB{where} that is no answer")


class Talk:
    """One host's connection. `noise`: what came from the host besides answers."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], seconds: float) -> None:
        """Take what runs the probe there, its variables here, and how long one answer may take."""
        self._command = command
        self._environ = dict(environ)
        self._seconds = seconds
        self._process: asyncio.subprocess.Process | None = None
        self._errors: IO[bytes] | None = None
        self._noise_bytes = 0
        self.noise: list[str] = []

    async def ask(self, question: Any, answer: type[T]) -> T:
        """Return the answer to a question; SilenceError when there is none in time, or no right one."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._ask(question, answer)
        except TimeoutError:
            raise SilenceError(None, await self._end()) from None
        except _FloodError as flood:
            raise SilenceError(None, [*await self._end(), str(flood)], str(flood)) from None
        except (OSError, ValueError, TypeError) as error:
            raise SilenceError(
                None, [*await self._end(), str(error)], f"no answer of ours: {error}"
            ) from None

    async def _ask(self, question: Any, answer: type[T]) -> T:
        process = self._process or await self._start()
        assert process.stdin is not None, "a pipe"
        assert process.stdout is not None, "a pipe"
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its code and words tell why
            process.stdin.write(dump_line({"ask": _NAMES[type(question)], "what": asdict(question)}).encode())
            await process.stdin.drain()
        while raw := await self._line(process.stdout):
            # A shell's greeting may end without a line break.
            noise, mark, said = raw.decode("utf-8", "replace").partition(MARK)
            if noise.strip() and len(self.noise) < _MOST_LINES:
                self.noise.append(without_escapes(noise.strip()))
            if mark:
                return build(answer, loads(said))
        code = await process.wait()
        raise SilenceError(code, await self._end())

    async def _line(self, stream: asyncio.StreamReader) -> bytes:
        try:
            raw = await stream.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            raw = error.partial
        except asyncio.LimitOverrunError:
            raise _FloodError(_LONGEST_LINE_BYTES, " on one line") from None
        self._noise_bytes += 0 if MARK.encode() in raw else len(raw)
        if self._noise_bytes > _MOST_NOISE_BYTES:
            raise _FloodError(_MOST_NOISE_BYTES)
        return raw

    async def _start(self) -> asyncio.subprocess.Process:
        # A file, for a connection that is kept for the next one holds it open beyond the end of this one.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._errors,
            env=self._environ,
            limit=_LONGEST_LINE_BYTES,
            start_new_session=True,  # a Ctrl-C at the terminal is for dsforge
        )
        return process

    async def close(self) -> None:
        """End the conversation."""
        if self._process is not None:
            assert self._process.stdin is not None, "a pipe"
            self._process.stdin.close()
            await self._end()

    async def _end(self) -> list[str]:
        """End the connection, by force if need be, and return its last words on stderr."""
        if self._process is None or self._errors is None:
            return []
        try:
            await asyncio.wait_for(self._process.wait(), _END_SECONDS if self._closing else _LAST_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), _END_SECONDS)
        if self._errors.closed:
            return []
        with self._errors as stream:
            stream.seek(0)
            lines = stream.read(_LONGEST_LINE_BYTES).decode("utf-8", "replace").splitlines()
        return [line for line in map(without_escapes, lines[-_MOST_LINES:]) if line.strip()]

    @property
    def _closing(self) -> bool:
        process = self._process
        return process is not None and process.stdin is not None and process.stdin.is_closing()
