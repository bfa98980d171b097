"""Files that are either whole or not there."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_RESERVE_BYTES = 256 * 1024
"""For a record of a run's end, with the reasons of a thousand restarts."""


def fsync_directory(path: Path) -> None:
    """Flush a directory's entries, so that a rename in it survives a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_regular(path: Path) -> None:
    """Raise OSError for what is no regular file, or not there.

    A pipe without a writer would wait for ever, a device may never end.
    """
    _check_mode(path.stat().st_mode, path)


def _check_mode(mode: int, path: Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def open_own(path: Path) -> BinaryIO:
    """Open a file of a run's folder to read; OSError for what dsforge has not written there.

    That is a pipe, a device, or a link, which would have a file from elsewhere shown as the run's.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "a link, which is not followed here", str(path)) from None
        raise
    try:
        _check_mode(os.fstat(handle).st_mode, path)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_own(path: Path) -> str:
    """Return the text of such a file; OSError as `open_own`, UnicodeDecodeError if it is not UTF-8."""
    with open_own(path) as stream:
        return stream.read().decode("utf-8")


def read_bounded(path: Path, most_bytes: int) -> str:
    """Return the text of a regular file; OSError for any other or a larger one.

    UnicodeDecodeError if not UTF-8.
    """
    check_regular(path)
    if path.stat().st_size > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes} bytes", str(path))
    return path.read_text("utf-8")


def write_atomically(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a text file by renaming a flushed temporary over it; OSError leaves the old file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
        fsync_directory(path.parent)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise


def why_unwritable(folder: Path) -> str | None:
    """Return why no file can be made in a folder, or in the nearest above it that is there; None if one can.

    The file that is tried has no name, or loses it at once.
    """
    there = folder
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    try:
        with tempfile.TemporaryFile(dir=there):
            return None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        return f"{there} cannot be written to ({reason})" if there.is_dir() else f"{there} is not a folder"


@contextmanager
def reserved(path: Path) -> Iterator[None]:
    """Hold room on a disk with a file, which is free again when the body fails for want of any; OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(handle, 0, _RESERVE_BYTES)
        yield
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):
            path.unlink()


def append_line(path: Path, line: str) -> None:
    """Append one whole line in a single write, so that lines of several ranks never mix."""
    data = line.encode("utf-8", "backslashreplace")
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        while data:
            data = data[os.write(handle, data) :]
    finally:
        os.close(handle)
