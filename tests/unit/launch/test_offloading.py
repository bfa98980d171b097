"""What offload to a disk needs of a host, and who is told that it lacks it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.launch.building import Builds, HostBuild
from dsforge.launch.checkpoints import check_writable
from dsforge.launch.offloading import check_disk, check_folder
from dsforge.launch.prebuild import prebuild
from dsforge.launch.preflight import Preflight
from dsforge.launch.types import LaunchRequest
from dsforge.records.probe import Built
from tests.launch_support.bundles import make_bundle
from tests.support.recipes import ROOT, plan_of


def request_in(root: Path, cc: Path, ops: Path) -> LaunchRequest:
    parallel = {"tp": 1, "pp": 1, "dp": 8, "zero": 3}
    plan = plan_of({"parallel": parallel, "offload": {"optimizer": "nvme", "path": "disk/states"}})
    environ = {"CC": str(cc), "TORCH_EXTENSIONS_DIR": str(ops)}
    return LaunchRequest(plan, make_bundle(plan), root / "runs", root, "tiny.yaml", "", (), environ)


def compiler(folder: Path, code: int) -> Path:
    """A compiler that finds the header of libaio, or does not."""
    program = folder / f"cc{code}"
    program.write_text(f'#!/bin/sh\ncase "$*" in *libaio.h*) exit {code};; esac\nexit 9\n')
    program.chmod(0o755)
    return program


def test_a_header_that_is_missing_is_refused_with_one_command(tmp_path: Path):
    request = request_in(tmp_path, compiler(tmp_path, 1), tmp_path / "ops")
    with pytest.raises(DsforgeError) as caught:
        check_disk(request)
    assert caught.value.code == "DSF802"
    assert "`apt install libaio-dev`" in (caught.value.hint or "")


def test_a_kernel_that_is_built_needs_no_header(tmp_path: Path):
    built = tmp_path / "ops" / "async_io" / "async_io.so"
    built.parent.mkdir(parents=True)
    built.touch()
    check_disk(request_in(tmp_path, compiler(tmp_path, 1), tmp_path / "ops"))
    check_disk(request_in(tmp_path, compiler(tmp_path, 0), tmp_path / "none"))
    # Without a compiler to ask, building says what is missing.
    check_disk(request_in(tmp_path, tmp_path / "no-cc", tmp_path / "none"))


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path):
    (tmp_path / "disk").touch()
    with pytest.raises(DsforgeError) as caught:
        check_disk(request_in(tmp_path, compiler(tmp_path, 0), tmp_path / "ops"))
    assert caught.value.code == "DSF803"


def test_a_signal_ends_the_compiling_with_its_code(tmp_path: Path):
    (tmp_path / "deepspeed.py").write_text(
        "import os, signal, time\nos.kill(int(os.environ['ASKED']), signal.SIGTERM)\ntime.sleep(600)"
    )
    request = request_in(tmp_path, compiler(tmp_path, 0), tmp_path / "ops")
    config = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}}
    bundle = replace(request.bundle, files={"ds_config.json": json.dumps(config)})
    environ = {**request.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "ASKED": str(os.getpid())}
    found = Preflight(None, Path(sys.executable), tmp_path / "ops", (), (), ())
    told: list[str] = []
    with pytest.raises(DsforgeError) as caught:
        prebuild(
            replace(request, bundle=bundle, environ=environ), found, lambda event: told.append(event.message)
        )
    assert (caught.value.code, caught.value.exit_code) == ("DSF825", 143)
    assert caught.value.message.startswith("stopped by SIGTERM while kernels were compiled")
    assert told == ["compiling AsyncIO, which takes minutes the first time"]


@pytest.mark.parametrize("place", ["/proc/nope", "/dev/null/states"])
def test_a_place_where_no_file_can_be_made_is_found_whoever_one_is(place: str):
    # As root, whom the rights of a folder tell nothing.
    with pytest.raises(DsforgeError) as caught:
        check_folder(Path(place))
    assert caught.value.code == "DSF803"
    with pytest.raises(DsforgeError) as caught:
        check_writable(Path(place))
    assert caught.value.code == "DSF210"


def test_only_the_disks_kernel_keeps_a_run_from_starting():
    failed = {"async_io": "no libaio.h", "cpu_adam": "no compiler"}
    done = HostBuild("node-1", Built((), (), failed, None, 1.0))
    found = {one.code: one.severity.value for one in Builds(("CPUAdam", "AsyncIO"), (done,)).findings()}
    assert found == {"DSF802": "error", "DSF740": "warning"}
