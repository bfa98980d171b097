"""Which program starts the ranks: the recipe alone decides, what is installed here says nothing of there."""

from __future__ import annotations

from typing import Literal

from dsforge.recipe.model import Recipe

Launcher = Literal["local", "ssh", "pdsh", "openmpi", "mpich", "torchrun", "slurm", "kubernetes", "pbs"]


def choose_launcher(recipe: Recipe) -> tuple[Launcher | None, str | None]:
    """Return the launcher and, where the recipe leaves it open, why; None where nothing says how."""
    launcher, cluster = recipe.launch.launcher, recipe.cluster
    if launcher != "auto":
        return launcher, None
    if cluster.nodes == 1:
        return "local", "one node"
    if cluster.hostfile is not None:
        return "pdsh", f"{cluster.nodes} nodes and a hostfile"
    return (
        None,
        f"{cluster.nodes} nodes, and neither cluster.hostfile nor launch.launcher says how to reach them",
    )
