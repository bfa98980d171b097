"""Variables that follow from the recipe and its hosts, each with its reason; the user's own win."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dsforge.catalog.engines.flavours import flavour_of
from dsforge.catalog.tables import Hardware
from dsforge.external.expressions import evaluate
from dsforge.plan.program import program_of
from dsforge.recipe.interface import is_found_on_hosts
from dsforge.recipe.settled import SettledRecipe

Variable = tuple[str, str, str]
"""Name, value, why."""


def derive_environment(
    recipe: SettledRecipe, hardware: Hardware, values: Mapping[str, Any]
) -> dict[str, tuple[str, str]]:
    """Return name -> (value, why) for variables that the recipe does not set itself.

    `values` are what the recipe says by name, asked for where it starts an external program.
    """
    own = _of_cpus() if hardware.accelerator == "cpu" else _of_gpus(recipe)
    wanted = [*own, *_of_network(recipe, gpus=hardware.accelerator != "cpu"), *_of_program(recipe, values)]
    return {name: (value, why) for name, value, why in wanted if name not in recipe.launch.env}


def _of_cpus() -> Iterator[Variable]:
    yield "DS_ACCELERATOR", "cpu", "the recipe's gpu is cpu; keeps DeepSpeed from probing for others"
    yield "OMP_NUM_THREADS", "1", "one thread a rank, so that ranks do not fight over cores"


def _of_gpus(recipe: SettledRecipe) -> Iterator[Variable]:
    if recipe.parallel.tp > 1:
        why = "TP overlaps its all-reduce with compute only when kernels keep their launch order"
        yield "CUDA_DEVICE_MAX_CONNECTIONS", "1", why
    launch = recipe.launch
    cores = launch.slurm.cpus_per_task if launch.launcher == "slurm" else None
    if recipe.offload.optimizer == "none" and cores is not None:
        yield "OMP_NUM_THREADS", str(cores), "the cores that launch.slurm.cpus_per_task has for a rank"
    elif recipe.offload.optimizer == "none" and recipe.cluster.gpus_per_node > 1:
        why = (
            "as torchrun sets it, here under every launcher: the ranks of a host do not fight over its cores"
        )
        yield "OMP_NUM_THREADS", "1", why
    if recipe.cluster.nodes * recipe.cluster.gpus_per_node > 1:
        why = "NCCL writes the cause of an error into the rank's log, it is silent otherwise"
        yield "NCCL_DEBUG", "WARN", why
        # PyTorch's own default (ProcessGroupNCCL.hpp): 0 in a host's profile would turn the timeout off.
        why = "a collective that fails or outlasts launch.collective_timeout ends its rank, on every host"
        yield "TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", why


def _of_network(recipe: SettledRecipe, *, gpus: bool) -> Iterator[Variable]:
    cluster = recipe.cluster
    if cluster.interface is not None and not is_found_on_hosts(cluster.interface):
        why = "the recipe's cluster.interface"
        yield "GLOO_SOCKET_IFNAME", cluster.interface, why
        if gpus:
            # Without the sign NCCL takes every interface whose name begins so.
            yield "NCCL_SOCKET_IFNAME", f"={cluster.interface}", why
    if not gpus or cluster.nodes == 1:
        return
    if cluster.fabric in ("infiniband", "roce"):
        why = f"cluster.fabric is {cluster.fabric}: a host without it fails, instead of going by TCP"
        yield "NCCL_NET", "IB", why
    elif cluster.fabric == "ethernet":
        why = "cluster.fabric is ethernet: NCCL tries no RDMA device that a host happens to have"
        yield "NCCL_IB_DISABLE", "1", why


def _of_program(recipe: SettledRecipe, values: Mapping[str, Any]) -> Iterator[Variable]:
    section = program_of(recipe)
    if section is None:
        return
    for name, variable in flavour_of(section.flavour).variables.items():
        if variable.when is not None and not evaluate(variable.when, values):
            continue
        value = evaluate(variable.value, values)
        whole = isinstance(value, float) and value.is_integer()
        yield name, str(int(value) if whole else value), variable.why
