"""The two requests to the kernel that keep processes from outliving their owner: prctl(2), Linux only."""

from __future__ import annotations

import ctypes
import os

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# Loaded at import: between fork and exec nothing may be loaded any more.
_LIBC = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def signal_on_parent_death(number: int) -> None:
    """Have the kernel send this process a signal when the *thread* that started it ends; OSError."""
    _prctl(_PR_SET_PDEATHSIG, number)


def adopt_orphans(*, adopt: bool = True) -> None:
    """Make orphaned descendants children of this process rather than of init; OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(adopt))
