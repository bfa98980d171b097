"""Machines of the cost model: rates as measured, else what is usual for the data sheet's."""

from __future__ import annotations

from typing import Any

from dsforge.catalog.tables import hardware
from dsforge.catalog.yaml_tables import table
from dsforge.cost.job import Machine

_MATMUL_SHARE = 0.8
_LINK_SHARE = 0.78
"""What measured GPUs reach of their peaks: 0.73 (GB200) to 0.87 (A100), links 0.76 to 0.81 (rates.yaml)."""
_HALF = ("bf16", "fp16")


def machine_of(gpu: str, gpus_per_node: int, fabric: str = "infiniband") -> Machine | None:
    """Return a GPU by its hardware name among others of its kind; None where even its peaks are unknown."""
    rates: dict[str, Any] | None = table("rates").get(gpu)
    if rates is None:
        return from_peaks(gpu, gpus_per_node, fabric)
    return Machine(
        generation=rates["generation"],
        matmul_tflops=rates["matmul_tflops"],
        memory_bytes_per_second=rates["memory"] * 1e9,
        link_bytes_per_second=rates["link"] * 1e9,
        network_bytes_per_second=rates["network"] * 1e9,
        domain=rates.get("domain", 1),
        gpus_per_node=gpus_per_node,
        fabric=fabric,
    )


def from_peaks(gpu: str, gpus_per_node: int, fabric: str = "infiniband") -> Machine | None:
    """Return a machine as its data sheet lets one expect; None without one."""
    kind = hardware().get(gpu)
    if kind is None or kind.rates is None:
        return None
    rates = kind.rates
    peak = next(kind.peak_tflops[name] for name in _HALF if name in kind.peak_tflops)
    return Machine(
        generation=rates.like,
        matmul_tflops=peak * _MATMUL_SHARE,
        memory_bytes_per_second=rates.memory_gb_s * 1e9,
        link_bytes_per_second=rates.link_gb_s * _LINK_SHARE * 1e9,
        network_bytes_per_second=rates.network_gb_s * 1e9,
        domain=rates.domain,
        gpus_per_node=gpus_per_node,
        fabric=fabric,
        measured=False,
    )
