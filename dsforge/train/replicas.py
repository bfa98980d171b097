"""What PyTorch's own trainers ask of a Hugging Face model: every rank is a replica of it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import torch

from dsforge.plan.types import Layout
from dsforge.train import world


@dataclass(frozen=True, slots=True)
class Place:
    """A rank's coordinates under the names that DeepSpeed's topology has for them."""

    pipe: int
    model: int
    data: int


class Topology:
    """One stage, one shard: a rank's number is its replica's."""

    def get_coord(self, rank: int) -> Place:
        """Return a rank's place."""
        return Place(pipe=0, model=0, data=rank)


def import_libraries(device: torch.device) -> None:  # noqa: ARG001 - every trainer's signature
    """Import transformers, which takes seconds."""
    importlib.import_module("transformers")


def make_groups(layout: Layout) -> world.Groups:  # noqa: ARG001 - every trainer's signature
    """Return the groups of a rank, whose model is whole."""
    return world.Groups(topology=Topology(), shard=0)
