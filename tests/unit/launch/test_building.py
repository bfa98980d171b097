"""Kernels are built once a host, over its connection, and locks that nobody holds are cleared before."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from dsforge.base import processes
from dsforge.base.errors import DsforgeError
from dsforge.launch.building import Builds, HostBuild, build_on, unless_stopped
from dsforge.launch.signals import StopSignals
from dsforge.launch.talk import Talk
from dsforge.records.probe import Built
from tests.support.recipes import ROOT

BUILDER = """
import os, pathlib, time
class FusedAdamBuilder:
    def load(self):
        if os.environ.get("BROKEN"):
            raise RuntimeError("no nvcc here")
        folder = pathlib.Path(os.environ["TORCH_EXTENSIONS_DIR"], "fused_adam")
        folder.mkdir(exist_ok=True)
        with (folder / "builds").open("a") as log:
            log.write("built\\n")
        (folder / "fused_adam.so").touch()
"""
"""In place of deepspeed's, which needs CUDA."""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "builders.py").write_text(BUILDER)
    return {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{tmp_path}"}


def built(environ: dict[str, str], *folders: Path, **more: str) -> list[HostBuild]:
    """Build as on hosts with folders of their own, each a process that is talked to."""
    probe = [sys.executable, "-u", "-m", "dsforge.rank.probe"]
    builders = {"fused_adam": "builders:FusedAdamBuilder"}
    found = []
    for folder in folders:
        talks = {f"node-{number}": Talk(probe, environ, 60.0) for number in (1, 2)}
        found += asyncio.run(build_on(talks, str(folder), builders, {**environ, **more}))
    return found


def test_each_kernel_is_built_where_it_is_not(environ: dict[str, str], tmp_path: Path):
    folder = tmp_path / "ops"
    lock = folder / "fused_adam" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    first = built(environ, folder)
    assert {path for one in first if one.built for path in one.built.removed} == {str(lock)}
    assert not lock.exists()
    assert any(one.built and one.built.built == ("fused_adam",) for one in first)
    times = (lock.parent / "builds").read_text()
    again = built(environ, folder)
    assert [(one.built.built, one.built.removed) for one in again if one.built] == [((), ()), ((), ())]
    assert (lock.parent / "builds").read_text() == times


def test_a_lock_that_another_hosts_build_holds_stays(environ: dict[str, str], tmp_path: Path):
    lock = tmp_path / "ops" / "fused_adam" / "lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w"):
        (one, _) = built(environ, tmp_path / "ops")
    assert one.built is not None
    assert (one.built.removed, lock.exists()) == ((), True)


def test_what_cannot_be_built_is_told_with_its_host(environ: dict[str, str], tmp_path: Path):
    done = built(environ, tmp_path / "ops", BROKEN="1")
    found = list(Builds(("FusedAdam",), tuple(done)).findings())
    assert [(one.code, one.severity.value, one.place and one.place.host) for one in found] == [
        ("DSF740", "warning", "node-1"),
        ("DSF740", "warning", "node-2"),
    ]
    assert found[0].message.startswith("fused_adam cannot be built: RuntimeError: no nvcc here")


def test_a_host_that_is_gone_is_told(tmp_path: Path):
    talks = {"node-1": Talk([sys.executable, "-c", "raise SystemExit('gone')"], {}, 30.0)}
    done = asyncio.run(build_on(talks, str(tmp_path), {}, {}))
    (found,) = Builds((), done).findings()
    assert "it gave no answer: gone" in found.message


def test_nothing_to_build_is_nothing_done(environ: dict[str, str], tmp_path: Path):
    talks = {"node-1": Talk([sys.executable, "-u", "-m", "dsforge.rank.probe"], environ, 30.0)}
    (one,) = asyncio.run(build_on(talks, str(tmp_path / "ops"), {}, environ))
    assert one.built == Built((), (), {}, None, one.built.seconds if one.built else 0.0)


def test_a_folder_that_is_none_is_told(environ: dict[str, str], tmp_path: Path):
    (tmp_path / "ops").touch()
    done = built(environ, tmp_path / "ops")
    found = [one.message for one in Builds(("FusedAdam",), tuple(done)).findings()]
    assert found == [f"its folder of kernels cannot be used: {tmp_path / 'ops'}: File exists"] * 2


def test_a_signal_lets_go_of_the_hosts_and_leaves_no_compiler(environ: dict[str, str], tmp_path: Path):
    told = tmp_path / "told"
    (tmp_path / "builders.py").write_text(
        "import pathlib, subprocess\n"
        "class FusedAdamBuilder:\n"
        "    def load(self):\n"
        "        one = subprocess.Popen(['sleep', '600'], process_group=0)\n"
        f"        pathlib.Path({str(told)!r}).write_text(str(one.pid))\n"
        "        one.wait()\n"
    )
    talks = {"node-1": Talk([sys.executable, "-u", "-m", "dsforge.rank.probe"], environ, 60.0)}
    signals = StopSignals()

    async def stopped() -> None:
        builders = {"fused_adam": "builders:FusedAdamBuilder"}
        building = unless_stopped(build_on(talks, str(tmp_path / "ops"), builders, environ), signals)
        task = asyncio.ensure_future(building)
        while not (told.is_file() and told.read_text()):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)
        signals.first = signal.SIGINT
        await task

    with pytest.raises(DsforgeError, match="stopped by SIGINT") as caught:
        asyncio.run(stopped())
    assert (caught.value.code, caught.value.exit_code) == ("DSF825", 130)
    pid = int(told.read_text())
    while (compiler := processes.identify(pid)) is not None and processes.is_alive(compiler):
        time.sleep(0.05)  # the kernel tells its builder
