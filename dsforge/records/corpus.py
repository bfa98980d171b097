"""Names of the built-in corpus's files, which one process writes and the ranks read."""

from __future__ import annotations

HELD_OUT_SUFFIX = "-valid"
"""After the built-in corpus's prefix: its documents that are validated on and never trained on."""
