"""How well predictions choose: among measured layouts, and against layouts that others called best."""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any

from published import GPUS, Measured

from dsforge.catalog.tables import hardware
from dsforge.cost.job import Job
from dsforge.cost.memory import fullest
from dsforge.cost.step import step_seconds

_SWEEPS = ("bigscience",)
"""Sources that measured several layouts of one job."""
_BEST = ("nanotron", "NeMo 2", "Megatron-Bridge performance", "Llama 3 paper")
"""Sources that print one layout of a job, found best by those who ran it."""
_DEGREES = (1, 2, 4, 8, 16, 32, 64)
_USABLE = 0.94
"""Of the memory on the label: what torch sees, less the driver's context."""
Layout = tuple[int, int, int, int]


def sweeps(rows: Iterable[Measured]) -> list[dict[str, Any]]:
    """Return for each job that was measured in several layouts what choosing by prediction costs."""
    jobs: dict[Any, dict[Layout, list[Measured]]] = collections.defaultdict(
        lambda: collections.defaultdict(list)
    )
    for row in rows:
        if row.job is not None and any(name in row.row["source"] for name in _SWEEPS):
            job = row.job
            layout = (job.tp, job.pp, job.dp, job.micro)
            jobs[(job.work, job.gpus, job.global_batch, job.precision)][layout].append(row)
    return [_regret(layouts) for layouts in jobs.values() if len(layouts) > 1]


def _regret(layouts: dict[Layout, list[Measured]]) -> dict[str, Any]:
    """A layout measured on several days counts with their mean."""
    measured = {layout: fmean(row.seconds for row in rows) for layout, rows in layouts.items()}
    chosen = min(layouts, key=lambda layout: layouts[layout][0].predicted())
    best = min(measured, key=lambda layout: measured[layout])
    return {
        "job": next(iter(layouts.values()))[0].row["id"],
        "layouts": len(layouts),
        "chosen": list(chosen),
        "best": list(best),
        "regret": measured[chosen] / measured[best] - 1,
    }


def published_best(rows: Iterable[Measured]) -> list[dict[str, Any]]:
    """Return for each published best layout how much slower it is predicted than the predicted best one."""
    found, known = {}, {}
    for row in rows:
        gpu = hardware().get(GPUS.get(row.row["gpu_type"], ""))
        if row.job is None or gpu is None or not any(name in row.row["source"] for name in _BEST):
            continue
        assert gpu.memory_bytes is not None, "every GPU has a memory"
        bare = replace(row.job, tp=1, pp=1, vp=1, cp=1, ep=1, dp=1, micro=1, expert_tp=None, recompute="none")
        if bare not in known:
            known[bare] = _best(row.job, _USABLE * gpu.memory_bytes)
        published, (best, choice) = row.predicted(), known[bare]
        if choice is None or published < best:
            best, choice = published, row.job
        found[row.row["id"]] = {
            "job": row.row["id"],
            "group": row.group,
            "gap": published / best - 1,
            "ours": {name: getattr(choice, name) for name in ("tp", "pp", "vp", "cp", "ep", "dp", "micro")},
            "recompute": choice.recompute,
        }
    return list(found.values())


def _best(job: Job, memory_bytes: float) -> tuple[float, Job | None]:
    best: tuple[float, Job | None] = (math.inf, None)
    for one in candidates(job):
        seconds = step_seconds(one).total
        if seconds < best[0] and fullest(one) <= memory_bytes:
            best = seconds, one
    return best


def candidates(job: Job) -> Iterator[Job]:
    """Yield the same job in every layout that its engine could take: what is learnt stays as it is."""
    work, experts = job.work, job.work.experts
    tps = [tp for tp in _DEGREES if tp <= job.machine.gpus_per_node and work.heads % tp == 0]
    eps = [ep for ep in _DEGREES if (experts is None and ep == 1) or (experts and experts.count % ep == 0)]
    cps = [cp for cp in (1, 2, 4, 8, 16) if cp == 1 or work.seq_len // cp >= 4096]
    for tp, pp, cp in itertools.product(tps, _DEGREES, cps):
        if pp > work.layers or job.gpus % (tp * pp * cp):
            continue
        dp = job.gpus // (tp * pp * cp)
        for ep, micro in itertools.product(eps, (1, 2, 4, 8)):
            # Whole experts stand on ranks of TP, too.
            if tp * dp * cp % ep or job.global_batch % (dp * micro):
                continue
            for vp in _virtual(job, pp, job.global_batch // (dp * micro)):
                for recompute in ("none", "selective", "full"):
                    degrees = {"tp": tp, "pp": pp, "cp": cp, "dp": dp, "ep": ep, "vp": vp, "micro": micro}
                    expert_tp = 1 if ep > 1 else None
                    yield replace(job, **degrees, expert_tp=expert_tp, recompute=recompute)


def _virtual(job: Job, pp: int, micro_batches: int) -> list[int]:
    """Virtual stages take micro-batches in groups of PP, and equal parts of a stage's layers.

    Embedding and loss may count as a layer each. Not every engine was seen to interleave.
    """
    if pp == 1 or job.engine in ("nanotron", "ddp", "fsdp") or micro_batches % pp:
        return [1]
    dealt = (job.work.layers, job.work.layers + 2)
    return [vp for vp in range(1, 13) if vp == 1 or any(layers % (pp * vp) == 0 for layers in dealt)]


def ranking(rows: list[Measured], *, best: bool) -> dict[str, Any]:
    """Return the sweeps, and the published best layouts where they are asked for, with mean and worst."""
    regrets = sweeps(rows)
    told: dict[str, Any] = {"sweeps": {"jobs": regrets, **_summary([one["regret"] for one in regrets])}}
    if best:
        gaps = published_best(rows)
        told["published_best"] = {
            "jobs": gaps,
            **_summary([one["gap"] for one in gaps]),
            "within_5_percent": sum(one["gap"] <= 0.05 for one in gaps),
            "within_10_percent": sum(one["gap"] <= 0.10 for one in gaps),
        }
    return told


def tell(ranked: dict[str, Any]) -> None:
    """Print the figures."""
    for name, word in (("sweeps", "regret"), ("published_best", "gap")):
        for one in sorted(ranked.get(name, {}).get("jobs", ()), key=lambda one: one[word]):
            print(f"{one[word]:6.1%} {word} {one['job']}")
    groups: dict[str, list[float]] = collections.defaultdict(list)
    for one in ranked.get("published_best", {}).get("jobs", ()):
        groups[one["group"]].append(one["gap"])
    for group, gaps in groups.items():
        print(f"published best of {group}: {len(gaps)} jobs, mean gap {fmean(gaps):.1%}")
    for name, one in ranked.items():
        print(f"{name}: {one['count']} jobs, mean {one['mean']:.1%}, worst {one['worst']:.1%}")


def _summary(values: list[float]) -> dict[str, float]:
    return {"count": len(values), "mean": fmean(values) if values else 0.0, "worst": max(values, default=0.0)}
