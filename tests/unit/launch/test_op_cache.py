from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.launch.op_cache import build_ops, clear_stale_locks, needed_ops, ops_dir


def test_one_folder_an_environment(monkeypatch):
    environ = {"HOME": "/home/a"}
    here = ops_dir(environ)
    assert here.parent == Path("/home/a/.cache/dsforge/ops")
    monkeypatch.setattr(sys, "prefix", "/another/venv")
    assert ops_dir(environ) != here
    assert ops_dir({**environ, "XDG_CACHE_HOME": "/cache"}).is_relative_to("/cache/dsforge/ops")
    assert ops_dir({**environ, "TORCH_EXTENSIONS_DIR": "/mine"}) == Path("/mine")


def test_only_locks_that_nobody_holds_are_removed(tmp_path):
    stale, held = tmp_path / "fused_adam" / "lock", tmp_path / "cpu_adam" / "lock"
    for lock in (stale, held):
        lock.parent.mkdir()
        lock.touch()
    with held.open():
        assert clear_stale_locks(tmp_path) == (stale,)
    assert held.exists()
    assert not stale.exists()


@pytest.mark.parametrize(
    ("accelerator", "config", "names"),
    [
        ("cuda", {"optimizer": {"type": "AdamW", "params": {"lr": 1.0}}}, ("FusedAdam",)),
        ("cuda", {"optimizer": {"type": "AdamW", "params": {"torch_adam": True}}}, ()),
        ("cuda", {"optimizer": {"type": "Lamb"}}, ()),
        ("cuda", {}, ()),
        ("cpu", {"optimizer": {"type": "AdamW", "params": {}}}, ()),
    ],
)
def test_needed_ops(tmp_path, accelerator, config, names):
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(config))
    assert needed_ops(accelerator, path) == names


def test_a_build_that_fails_says_why(tmp_path):
    # A module named deepspeed that cannot be imported stands in for a missing compiler.
    (tmp_path / "deepspeed.py").write_text("raise RuntimeError('no nvcc here')")
    with pytest.raises(DsforgeError, match="no nvcc here") as caught:
        build_ops(("FusedAdam",), {"PYTHONPATH": str(tmp_path)})
    assert (caught.value.code, caught.value.exit_code) == ("DSF208", 3)
