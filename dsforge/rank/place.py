"""Variables of a rank that only its host can tell: the GPUs chosen there, and the interface to the others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dsforge.base.canonical import loads
from dsforge.rank.interfaces import SOCKET_VARIABLES, addresses_of, interface_variables, interfaces
from dsforge.records import environment
from dsforge.records.gpus import FILE_NAME, read_chosen_gpus


def place_variables(plan_path: Path, node: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a rank's trainer has over the rank's own variables.

    OSError, or ValueError in words where the plan's choice cannot be had on this host.
    """
    return {**_devices(plan_path, node, environ), **_interface(plan_path, environ)}


def _devices(plan_path: Path, node: int, environ: Mapping[str, str]) -> dict[str, str]:
    """All ranks of a host see the same GPUs, and take theirs by LOCAL_RANK, under every launcher."""
    chosen = read_chosen_gpus(plan_path.with_name(FILE_NAME))
    if chosen is not None:
        if node >= len(chosen.by_node):
            raise ValueError(f"{FILE_NAME} chooses GPUs of {len(chosen.by_node)} hosts, this is node {node}")
        # As nvidia-smi numbers them; CUDA would begin with the fastest.
        order = {} if "CUDA_DEVICE_ORDER" in environ else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        return {**order, "CUDA_VISIBLE_DEVICES": ",".join(map(str, chosen.by_node[node]))}
    if visible := environ.get(environment.VISIBLE_DEVICES):
        return {"CUDA_VISIBLE_DEVICES": visible}
    return {}


def _interface(plan_path: Path, environ: Mapping[str, str]) -> dict[str, str]:
    plan = loads(plan_path.read_text("utf-8"))
    choice = plan["launch"].get("interface")
    gpus = plan.get("accelerator") == "cuda"
    unset = {*SOCKET_VARIABLES[: 1 + gpus]} - environ.keys()
    if choice is None or not unset:
        return {}
    masters = addresses_of(environ.get("MASTER_ADDR", ""))
    there = interfaces()
    found = interface_variables(choice, masters, there, gpus=gpus)
    if not found:
        names = ", ".join(f"{one.name} ({one.addresses[0]})" for one in there if one.addresses) or "none"
        raise ValueError(
            f"cluster.interface {choice} is none of this host's interfaces that lead on: {names}"
        )
    return {name: value for name, value in found.items() if name in unset}
