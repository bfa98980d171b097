"""A control group of a test's own, in which the kernel's out-of-memory killer is soon at work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

GROUPS = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)


def little_memory(limit_bytes: int) -> Iterator[Path]:
    """Yield a control group with so much memory and none to swap to; skip where none can be made."""
    for root, limit in GROUPS:
        made = root / f"dsforge-test-{os.getpid()}"
        try:
            made.mkdir()
        except OSError:
            continue
        try:
            if (made / limit).exists():
                (made / limit).write_text(str(limit_bytes))
                if (made / "memory.swap.max").exists():
                    (made / "memory.swap.max").write_text("0")
                yield made
                return
        except OSError:
            continue
        finally:
            made.rmdir()
    pytest.skip("no control group with a limit of memory can be made here")
