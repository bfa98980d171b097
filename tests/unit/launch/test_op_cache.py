from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsforge.base import processes
from dsforge.launch.op_cache import build_ops, clear_stale_locks, needed_ops, not_built, ops_dir
from tests.support.recipes import ROOT


def test_one_folder_an_environment(monkeypatch):
    environ = {"HOME": "/home/a"}
    here = ops_dir(environ)
    assert here.parent == Path("/home/a/.cache/dsforge/ops")
    monkeypatch.setattr(sys, "prefix", "/another/venv")
    assert ops_dir(environ) != here
    assert ops_dir({**environ, "XDG_CACHE_HOME": "/cache"}).is_relative_to("/cache/dsforge/ops")
    assert ops_dir({**environ, "TORCH_EXTENSIONS_DIR": "/mine"}) == Path("/mine")
    # Ranks work in another folder.
    assert ops_dir({**environ, "TORCH_EXTENSIONS_DIR": "mine"}) == Path.cwd() / "mine"


def test_only_locks_of_builds_that_nobody_holds_are_removed(tmp_path):
    stale, held, begun = (
        tmp_path / "my_op" / "lock",
        tmp_path / "cpu_adam" / "lock",
        tmp_path / "fused_adam" / "lock",
    )
    deep, foreign, top = tmp_path / "a" / "b" / "lock", tmp_path / "mail" / "lock", tmp_path / "lock"
    for lock in (stale, held, begun, deep, foreign, top):
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
    for build in (stale, held, deep):
        (build.parent / "build.ninja").touch()
    (tmp_path / "link").symlink_to(deep.parent)
    with held.open():
        assert clear_stale_locks(tmp_path) == (begun, stale)
    assert [lock.exists() for lock in (stale, held, begun, deep, foreign, top)] == [
        False,
        True,
        False,
        True,
        True,
        True,
    ]


def _offload(device: str) -> dict[str, object]:
    zero = {"stage": 3, "offload_optimizer": {"device": device}}
    return {"optimizer": {"type": "AdamW"}, "zero_optimization": zero}


@pytest.mark.parametrize(
    ("accelerator", "config", "names"),
    [
        ("cuda", {"optimizer": {"type": "AdamW", "params": {"lr": 1.0}}}, ("FusedAdam",)),
        ("cuda", {"optimizer": {"type": "AdamW", "params": {"torch_adam": True}}}, ()),
        ("cuda", {"optimizer": {"type": "Lamb"}}, ()),
        ("cuda", {}, ()),
        ("cpu", {"optimizer": {"type": "AdamW", "params": {}}}, ()),
        ("cuda", _offload("cpu"), ("CPUAdam",)),
        ("cuda", _offload("nvme"), ("CPUAdam", "AsyncIO")),
        ("cpu", _offload("nvme"), ("AsyncIO",)),
    ],
)
def test_needed_ops(accelerator, config, names):
    assert needed_ops(accelerator, config) == names


def test_a_build_that_fails_says_why(tmp_path):
    # A module named deepspeed that cannot be imported stands in for a missing compiler.
    (tmp_path / "deepspeed.py").write_text("raise RuntimeError('no nvcc here')")
    failures = build_ops(("FusedAdam",), {"PYTHONPATH": str(tmp_path)})
    assert failures == {"FusedAdam": "RuntimeError: no nvcc here"}


COMPILES = """
import os, pathlib, signal, subprocess
# As ninja does: each compiler in a group of its own, in the same session.
one = subprocess.Popen(["sleep", "600"], process_group=0)
pathlib.Path(os.environ["TOLD"]).write_text(str(one.pid))
one.wait()
"""


def compiling(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "deepspeed.py").write_text(COMPILES)
    return {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": os.environ["PATH"], "TOLD": str(tmp_path / "told")}


def compiler(told: Path) -> processes.ProcessId:
    """Wait for the compiler, which lives."""
    while not (told.is_file() and told.read_text()):
        time.sleep(0.05)
    found = processes.identify(int(told.read_text()))
    assert found is not None
    return found


def test_a_build_that_is_stopped_leaves_no_compiler(tmp_path: Path):
    told = tmp_path / "told"
    assert build_ops(("AsyncIO", "CPUAdam"), compiling(tmp_path), told.exists) == {}
    assert not processes.is_alive(compiler(told))


def test_compilers_end_with_the_process_that_builds(tmp_path: Path):
    words = "from dsforge.launch.op_cache import build_ops; import os; build_ops(('AsyncIO',), os.environ)"
    with subprocess.Popen([sys.executable, "-c", words], env=compiling(tmp_path)) as building:
        one = compiler(tmp_path / "told")
        building.kill()
    while processes.is_alive(one):  # the kernel tells its builder
        time.sleep(0.05)


def test_what_is_built_is_not_compiled_again(tmp_path: Path):
    (tmp_path / "cpu_adam").mkdir()
    (tmp_path / "cpu_adam" / "cpu_adam.so").touch()
    assert not_built(("CPUAdam", "AsyncIO"), tmp_path) == ("AsyncIO",)
