"""Who this rank is, from the launcher's variables, and whether the plan agrees."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class RankWorld:
    """What the launcher says about this rank; `node` counts hosts from 0."""

    rank: int
    local_rank: int
    world_size: int
    node: int


def read_world(environ: Mapping[str, str]) -> RankWorld:
    """Return this rank's place from RANK, LOCAL_RANK, WORLD_SIZE, CROSS_RANK; ValueError names a bad one."""
    return RankWorld(
        rank=_count(environ, "RANK"),
        local_rank=_count(environ, "LOCAL_RANK"),
        world_size=_count(environ, "WORLD_SIZE"),
        node=_count(environ, "CROSS_RANK") if "CROSS_RANK" in environ else 0,
    )


def _count(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name)
    if text is None:
        raise ValueError(f"the launcher did not set {name}")
    if not text.isdecimal():
        raise ValueError(f"the launcher set {name} to {text!r}, which is not a rank or a count")
    return int(text)


def difference_from_plan(world: RankWorld, plan_path: Path) -> str | None:
    """Return how the world differs from plan.json's layout, or None; OSError, ValueError for a bad file."""
    layout = _section(plan_path, "layout", "world_size", "gpus_per_node")
    planned_world, planned_slots = int(layout["world_size"]), int(layout["gpus_per_node"])
    if world.world_size != planned_world:
        return f"the launcher started {world.world_size} ranks, the plan has {planned_world}"
    if world.rank >= planned_world:
        return f"the launcher started rank {world.rank}, the plan has ranks 0 to {planned_world - 1}"
    expected = (world.rank // planned_slots, world.rank % planned_slots)
    if (world.node, world.local_rank) != expected:
        return (
            f"rank {world.rank} is local rank {world.local_rank} of node {world.node}, "
            f"the plan puts it at local rank {expected[1]} of node {expected[0]}"
        )
    return None


def stop_timeout_seconds(plan_path: Path) -> float:
    """Return how long a request to stop may take, 0 for no limit; OSError, ValueError for a bad file."""
    return float(_section(plan_path, "launch", "stop_timeout_seconds")["stop_timeout_seconds"])


def _section(plan_path: Path, name: str, *keys: str) -> dict[str, Any]:
    try:
        section = json.loads(plan_path.read_text("utf-8"))[name]
        return {key: section[key] for key in keys}
    except (KeyError, TypeError) as error:
        raise ValueError(f"{plan_path} is not a plan: {error} is missing") from error
