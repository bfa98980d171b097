"""A plan's layout and choices in words, of the JSON that `plan.json` holds, also an older version's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PLAIN_SCHEDULE, PLAIN_OPTIMIZER = "1f1b", "adamw"
_DEGREES = ("tp", "pp", "dp", "zero", "world_size")


def product(layout: Mapping[str, Any]) -> str:
    """Return the degrees whose product is the world; KeyError."""
    cp = layout.get("cp", 1)
    return f"TP {layout['tp']} x PP {layout['pp']}{f' x CP {cp}' if cp > 1 else ''} x DP {layout['dp']}"


def degrees(plan: Mapping[str, Any]) -> str:
    """Return the degrees whose product is the world, and what stands within them; KeyError."""
    layout = plan["layout"]
    ep, vp = (layout.get(name, 1) for name in ("ep", "vp"))
    schedule = layout.get("schedule", PLAIN_SCHEDULE)
    within = [f"EP {ep}"] if ep > 1 else []
    within += [f"{vp} virtual stages each"] if vp > 1 else []
    within += [f"schedule {schedule}"] if layout["pp"] > 1 and schedule != PLAIN_SCHEDULE else []
    within += ["sequences split over TP"] if layout.get("sequence_parallel") else []
    told = f" ({', '.join(within)})" if within else ""
    return product(layout) + told


def not_exercised(kinds: Sequence[str]) -> str:
    """Return what a verdict on a shrunken layout says nothing of, ready to stand behind it."""
    return f", but {', '.join(kinds)} not exercised" if kinds else ""


def choices(plan: Mapping[str, Any]) -> list[str]:
    """Return precision, and of optimizer and offload what is not plain; KeyError."""
    optimizer, offload = plan["optimizer"].get("type", PLAIN_OPTIMIZER), plan.get("offload", {})
    told = [plan["train"]["precision"]]
    told += [optimizer] if optimizer != PLAIN_OPTIMIZER else []
    for what, words in (("optimizer", "optimizer states"), ("parameters", "parameters")):
        told += [f"{words} on {place}"] if (place := offload.get(what, "none")) != "none" else []
    return told


def facts(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return by name what the words tell, and the recomputation; KeyError, TypeError or ValueError."""
    layout, offload = plan["layout"], plan.get("offload", {})
    return {
        **{name: int(layout[name]) for name in _DEGREES},
        **{name: int(layout.get(name, 1)) for name in ("cp", "ep", "vp")},
        "schedule": layout.get("schedule", PLAIN_SCHEDULE),
        "sequence_parallel": bool(layout.get("sequence_parallel")),
        "trainer": plan["trainer"],
        "precision": plan["train"]["precision"],
        "recompute": plan["train"]["recompute"],
        "optimizer": plan["optimizer"].get("type", PLAIN_OPTIMIZER),
        "offload": {name: offload.get(name, "none") for name in ("optimizer", "parameters")},
    }
