from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import pytest

from dsforge.base.caches import cache_root


@pytest.mark.parametrize(
    ("environ", "root"),
    [
        ({"HOME": "/home/a"}, "/home/a/.cache/dsforge"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "/cache"}, "/cache/dsforge"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": ""}, "/home/a/.cache/dsforge"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "cache"}, "/home/a/.cache/dsforge"),
    ],
)
def test_the_cache_is_absolute(environ, root):
    assert cache_root(environ) == Path(root)


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}, {"HOME": "here"}])
def test_without_home_it_is_the_recorded_one(environ):
    assert cache_root(environ) == Path(pwd.getpwuid(os.getuid()).pw_dir) / ".cache" / "dsforge"


def test_a_user_without_any_home_gets_a_folder_of_its_own(monkeypatch, tmp_path):
    def nobody(_):
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    root = cache_root({})
    (made,) = tmp_path.iterdir()
    assert root.is_relative_to(made)
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert cache_root({}) == root
