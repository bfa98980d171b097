"""Machines of the cost model, from `catalog/data/rates.yaml`."""

from __future__ import annotations

from typing import Any

from dsforge.catalog.yaml_tables import table
from dsforge.cost.job import Machine


def machine_of(gpu: str, gpus_per_node: int, fabric: str = "infiniband") -> Machine | None:
    """Return a GPU by its hardware name among others of its kind; None where nobody measured its rates."""
    rates: dict[str, Any] | None = table("rates").get(gpu)
    if rates is None:
        return None
    return Machine(
        generation=rates["generation"],
        matmul_tflops=rates["matmul_tflops"],
        memory_bytes_per_second=rates["memory"] * 1e9,
        link_bytes_per_second=rates["link"] * 1e9,
        network_bytes_per_second=rates["network"] * 1e9,
        domain=rates["domain"] if rates.get("spans_nodes") else min(rates["domain"], gpus_per_node),
        gpus_per_node=gpus_per_node,
        fabric=fabric,
    )
