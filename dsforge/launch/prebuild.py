"""Compiles this host's kernels before the ranks start, which would else each wait for one of them."""

from __future__ import annotations

import json
import os
import time

from dsforge.launch import machine, op_cache
from dsforge.launch.create import disk_error
from dsforge.launch.preflight import Preflight
from dsforge.launch.signals import StopSignals
from dsforge.launch.types import LaunchRequest, OnEvent, ProgressEvent


def prebuild(request: LaunchRequest, found: Preflight, on_event: OnEvent) -> None:
    """Clear stale locks and build what the engine would compile; DsforgeError where nothing can stand in."""

    def tell(message: str) -> None:
        on_event(ProgressEvent(time.time(), "prebuild", message))

    try:
        found.ops_dir.mkdir(parents=True, exist_ok=True)
        for lock in op_cache.clear_stale_locks(found.ops_dir):
            tell(f"removed a lock that a killed build left: {lock}")
    except OSError as error:
        raise disk_error(found.ops_dir, error) from error
    ds_config = json.loads(request.bundle.files.get("ds_config.json", "{}"))
    names = op_cache.needed_ops(request.plan.accelerator, ds_config)
    if not names:
        return
    assert found.deepspeed is not None, "refused before"
    path = os.pathsep.join(filter(None, (str(found.deepspeed.parent), request.environ.get("PATH"))))
    environ = {**request.environ, "TORCH_EXTENSIONS_DIR": str(found.ops_dir), "PATH": path}
    if request.plan.accelerator == "cpu":
        environ["DS_ACCELERATOR"] = "cpu"
    if (python_path := machine.python_path(request.environ)) is not None:
        environ["PYTHONPATH"] = python_path
    if absent := op_cache.not_built(names, found.ops_dir):
        tell(f"compiling {', '.join(absent)}, which takes minutes the first time")
    with StopSignals() as signals:
        failed = op_cache.build_ops(names, environ, lambda: signals.first is not None)
    if signals.first is not None:
        raise op_cache.stopped(signals.first)
    if absent:
        tell(f"{', '.join(name for name in absent if name not in failed) or 'nothing'} is compiled")
    if op_cache.DISK in failed:
        raise op_cache.no_disk(failed[op_cache.DISK])
    for name, why in failed.items():
        tell(f"the ranks use PyTorch's fused AdamW: {name} cannot be built: {why}")
