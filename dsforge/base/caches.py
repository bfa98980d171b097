"""The folder for things that can be made again."""

from __future__ import annotations

import functools
import os
import pwd
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_root(environ: Mapping[str, str]) -> Path:
    """Return $XDG_CACHE_HOME/dsforge or ~/.cache/dsforge, an absolute path; without a home a private folder.

    A relative XDG_CACHE_HOME or HOME is passed over, as the XDG base directory specification has it: ranks
    work in another folder than the command that starts them.
    """
    if (chosen := Path(environ.get("XDG_CACHE_HOME", ""))).is_absolute():
        return chosen / "dsforge"
    home = Path(environ.get("HOME", ""))
    if not home.is_absolute():
        home = _recorded_home() or _private_folder()
    return home / ".cache" / "dsforge"


def _recorded_home() -> Path | None:
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return None


@functools.cache
def _private_folder() -> Path:
    # A name that others can foretell would let them put programs there for this user to run.
    return Path(tempfile.mkdtemp(prefix="dsforge-"))
