"""A lease: a lock on a file for as long as its holder lives; the kernel frees it, however that one dies.

Locks of one host are not seen on another, or not always. So the holder also counts in the file, and who looks
from another host takes it for dead when the count has stood still.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dsforge.base.processes import machine

BEAT_SECONDS = 2.0
EXPIRY_SECONDS = 16.0
"""A count that stood still for so long is a dead holder's, or nobody's: several beats, and a stalled disk."""
_DIGITS = 12
_LONGEST_BYTES = 4096


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold a lease; OSError when the file cannot be made or locked. The handle never passes to a child."""
    with path.open("wb", buffering=0) as stream:
        # Waits: who looks at a lease shares it for an instant.
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.write(_text(0))
        over = threading.Event()
        beating = threading.Thread(target=_beat, args=(stream.fileno(), over), name="lease", daemon=True)
        beating.start()
        try:
            yield
        finally:
            over.set()
            beating.join()
            _rewrite(stream.fileno(), _FREE)


def is_held(path: Path) -> bool:
    """Tell whether somebody of this host holds a lease; one whose file was removed is not held."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # out of file handles or a file system that stalls: no proof of death
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


class LeaseWatch:
    """Looks at a lease again and again, from the holder's host or from another."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: bytes | None = None
        self._changed = time.monotonic()

    @property
    def is_far(self) -> bool:
        """Tell whether the holder is on another host than this process."""
        words = (_read(self._path) or b"").split()
        return len(words) > 1 and words[1] != machine().encode()

    def is_held(self) -> bool:
        """Tell whether the holder lives, as far as this host can tell."""
        seen = _read(self._path)
        if seen is None:
            return is_held(self._path)
        if seen.startswith(_FREE):
            return False
        words = seen.split()
        if len(words) < 2 or words[1] == machine().encode():
            return is_held(self._path)
        now = time.monotonic()
        if seen != self._seen:
            self._seen, self._changed = seen, now
        return now - self._changed < EXPIRY_SECONDS


_FREE = b"free".ljust(_DIGITS)


def _text(count: int) -> bytes:
    # Always of one length, so that a full disk does not keep the holder from counting.
    return b"%0*d %s\n" % (_DIGITS, count, machine().encode())


def _beat(handle: int, over: threading.Event) -> None:
    count = 0
    while not over.wait(BEAT_SECONDS):
        count += 1
        _rewrite(handle, _text(count))


def _rewrite(handle: int, text: bytes) -> None:
    try:
        os.pwrite(handle, text, 0)
        os.fsync(handle)
    except OSError:
        return  # the lock still says it on this host, and others have patience


def _read(path: Path) -> bytes | None:
    """Return what stands in a lease, opened anew: a network file system looks at its server only then."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return os.read(handle, _LONGEST_BYTES)
    except OSError:
        return None
    finally:
        os.close(handle)
