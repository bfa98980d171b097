"""Fits the constants of the cost model to published measurements and writes calibration.yaml or memory.yaml.

Run: python benchmarks/fit_catalog.py --throughput FILE [--out FILE] [--leave-out], or with --memory FILE for
the memory model (fit_memory.py). Constants belong to a GPU generation, an engine, a fabric or to all; none to
a source or a row. Large sources weigh less than
their rows, and errors beyond a few per cent weigh less, so that no source and no odd row leads. `--leave-out`
fits once without each source and prints how that source is then predicted.
"""

from __future__ import annotations

import argparse
import collections
import copy
import datetime as dt
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import fit_memory
import numpy as np
from published import GPUS, Measured, read
from ruamel.yaml import YAML
from scipy.optimize import least_squares

from dsforge.cost.calibration import Calibration, build
from dsforge.cost.job import Job
from dsforge.cost.machine import from_peaks

HERE = Path(__file__).resolve().parent
PRIORS = HERE / "priors.yaml"
CATALOG = HERE.parent / "dsforge" / "catalog" / "data" / "calibration.yaml"
HEADER = """\
# Constants of the cost model, fitted by benchmarks/fit_catalog.py to published step times; the fields are
# explained in dsforge/cost/calibration.py. What is 0, 1, the number of a FlashAttention, true or false is a
# fact of a GPU generation or an engine, not fitted. `like`: an engine that differs from another in what its
# row says. trainers: whose measured runs a trainer's are most like. errors: mean relative error over sources
# that a fit had not seen, by kind of run (fit_catalog.py --leave-out). reaches: how far an engine's rows go.
"""
GROUPS = ("dense 16-bit", "dense fp8", "Blackwell dense", "MoE")
_SHARES = {"matmul", "link", "tp_hidden", "dp_hidden", "shard_hidden", "fabrics", "dispatch"}
_ROBUST = 0.02
_SOURCE_WEIGHT = -0.15
"""Power of a source's rows that each of its rows weighs: between equal rows (0) and equal sources (-0.5)."""
_PRIOR = 0.06
"""What a factor of e away from a prior weighs: enough where few sources tell, little elsewhere."""
Key = tuple[str, ...]

FITTED: dict[str, list[Key]] = {
    "dense 16-bit": [
        *(("generations", name, "matmul") for name in ("ampere", "hopper")),
        ("engines", "megatron-deepspeed", "layer_seconds"),
        ("engines", "megatron-core", "tp_hidden"),
        ("engines", "megatron-core", "dp_hidden"),
        ("engines", "fsdp", "shard_hidden"),
        *(("fabrics", name) for name in ("infiniband", "roce", "efa")),
        *(
            ("common", name)
            for name in (
                *(
                    "flash_attention_1",
                    "flash_attention_2",
                    "flash_attention_3",
                    "elementwise",
                    "link",
                    "logits",
                    "softmax",
                    "odd_head",
                ),
                *("uneven_head", "exposed", "shard_exposed", "message_seconds", "rank_seconds"),
            )
        ),
    ],
    "dense fp8": [("generations", "hopper", "fp8"), ("common", "cast")],
    "Blackwell dense": [
        *(("generations", "blackwell", key) for key in ("matmul", "fp8", "fp4")),
        ("generations", "blackwell-ultra", "matmul"),
    ],
    "MoE": [
        ("common", "expert_passes"),
        ("common", "dispatch"),
        ("common", "fused_expert_passes"),
        ("common", "fused_dispatch"),
        ("generations", "hopper", "expert_layer_seconds"),
    ],
}
TIED: dict[Key, list[Key]] = {
    ("engines", "megatron-core", "dp_hidden"): [
        ("engines", name, "dp_hidden") for name in ("ddp", "deepspeed", "fsdp2")
    ],
    ("engines", "fsdp", "shard_hidden"): [
        ("engines", name, "shard_hidden") for name in ("fsdp2", "deepspeed", "megatron-core")
    ],
    ("generations", "ampere", "matmul"): [("generations", "volta", "matmul")],
    ("generations", "blackwell", "fp8"): [("generations", "blackwell-ultra", "fp8")],
    ("generations", "blackwell", "fp4"): [("generations", "blackwell-ultra", "fp4")],
    ("fabrics", "infiniband"): [("fabrics", "omni-path")],
}


def fitted(rows: list[Measured], start: dict[str, Any], groups: tuple[str, ...] = GROUPS) -> dict[str, Any]:
    """Return the constants group by group: what an earlier group has fixed stays for the later ones."""
    constants = copy.deepcopy(start)
    for group in groups:
        own = [row for row in rows if row.job is not None and row.group == group]
        constants = _fit(own, constants, FITTED[group])
    return constants


def _fit(rows: list[Measured], start: dict[str, Any], keys: list[Key]) -> dict[str, Any]:
    counts = collections.Counter(row.row["source"] for row in rows)
    weights = np.array([counts[row.row["source"]] ** _SOURCE_WEIGHT for row in rows])
    seconds = np.array([row.seconds for row in rows])

    def residuals(values: np.ndarray) -> np.ndarray:
        constants = build(_with(start, keys, values))
        away = weights * np.log(np.array([row.predicted(constants) for row in rows]) / seconds)
        return np.concatenate([away, _PRIOR * np.log(values / first)])

    first = np.array([_get(start, key) for key in keys])
    most = np.array(
        [1.0 if _SHARES & set(key) else 50 * max(value, 0.02) for key, value in zip(keys, first, strict=True)]
    )
    least = np.minimum(1e-6, most / 2)
    found = least_squares(
        residuals,
        np.clip(first, least + 1e-9, most * 0.999),
        loss="soft_l1",
        f_scale=_ROBUST,
        bounds=(least, most),
        x_scale=np.maximum(first, 1e-7),
        max_nfev=150,
    )
    return _with(start, keys, np.array([float(f"{value:.3g}") for value in found.x]))


def _get(tree: dict[str, Any], key: Key) -> float:
    node: Any = tree
    for part in key:
        node = node[part]
    return float(node)


def _with(tree: dict[str, Any], keys: list[Key], values: np.ndarray) -> dict[str, Any]:
    made = copy.deepcopy(tree)
    for key, value in zip(keys, values, strict=True):
        for one in (key, *TIED.get(key, ())):
            node: Any = made
            for part in one[:-1]:
                node = node[part]
            node[one[-1]] = float(value)
    return made


def errors(rows: list[Measured], constants: Calibration) -> dict[str, dict[str, list[float]]]:
    """Return relative errors by group and source."""
    found: dict[str, dict[str, list[float]]] = {group: collections.defaultdict(list) for group in GROUPS}
    for row in rows:
        if row.job is not None:
            error = abs(row.predicted(constants) / row.seconds - 1)
            found[row.group][row.row["source"]].append(error)
    return found


def left_out(rows: list[Measured], constants: dict[str, Any], start: dict[str, Any], group: str) -> float:
    """Print how a group's sources are predicted by constants fitted without them; return the sources' mean.

    `constants`: fitted to all rows; the group's own start anew, from `start`.
    """
    own = [row for row in rows if row.job is not None and row.group == group]
    keys = FITTED[group]
    begun = _with(constants, keys, np.array([_get(start, key) for key in keys]))
    means = []
    for source in sorted({row.row["source"] for row in own}):
        others = [row for row in own if row.row["source"] != source]
        unseen = build(_fit(others, begun, keys))
        mine = [row for row in own if row.row["source"] == source]
        means.append(fmean(abs(row.predicted(unseen) / row.seconds - 1) for row in mine))
        print(f"  {means[-1]:.3f} {len(mine):4} {source}", flush=True)
    print(f"{group} left out, mean over {len(means)} sources: {fmean(means):.4f}", flush=True)
    return fmean(means)


_STAND_INS = {"ampere": "hopper", "hopper": "ampere", "blackwell": "hopper", "blackwell-ultra": "hopper"}


def unmeasured(rows: list[Measured], constants: Calibration) -> float:
    """Return the mean error where GPUs are known by their peaks and another generation's constants."""
    found = []
    for row in rows:
        gpu = GPUS.get(row.row["gpu_type"], "")
        if row.job is None or row.job.machine.generation not in _STAND_INS:
            continue
        machine = from_peaks(gpu, row.job.machine.gpus_per_node, row.job.machine.fabric)
        if machine is not None:
            other = replace(machine, generation=_STAND_INS[machine.generation])
            guess = replace(row, job=replace(row.job, machine=other))
            found.append(abs(guess.predicted(constants) / row.seconds - 1))
    return fmean(found)


def reaches(rows: list[Measured], constants: Calibration) -> dict[str, dict[str, Any]]:
    """Return how far the rows of each engine that is like no other go, and of those like it."""
    found: dict[str, list[Job]] = collections.defaultdict(list)
    for row in rows:
        if row.job is not None:
            found[constants.kin(row.job.engine)].append(row.job)
    return {
        name: {
            "seq_len": max(job.work.seq_len for job in jobs),
            "cp": max(job.cp for job in jobs),
            "offload": any(job.offload for job in jobs),
        }
        for name, jobs in sorted(found.items())
    }


def main() -> None:
    """Fit, tell and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    files = parser.add_mutually_exclusive_group(required=True)
    files.add_argument("--throughput", type=Path)
    files.add_argument("--memory", type=Path)
    parser.add_argument("--start", type=Path, default=PRIORS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--leave-out", action="store_true")
    given = parser.parse_args()
    if given.memory:
        fit_memory.fit(given.memory, given.out, leave_out=given.leave_out)
        return
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style, yaml.width = None, 118
    start = yaml.load(given.start.read_text("utf-8"))
    rows = list(read(given.throughput))
    constants = fitted(rows, start)
    kept = yaml.load(CATALOG.read_text("utf-8"))
    for group, sources in errors(
        rows, build({**constants, "errors": {}, "trainers": {}, "reaches": {}})
    ).items():
        every = [error for own in sources.values() for error in own]
        means = [fmean(own) for own in sources.values()]
        print(f"{group}: {len(every)} rows, mean {fmean(every):.4f}, by source {fmean(means):.4f}")
    print(f"{sum(len(keys) for keys in FITTED.values())} constants")
    if given.leave_out:
        kept["errors"] = {group: float(f"{left_out(rows, constants, start, group):.2g}") for group in GROUPS}
        kept["errors"]["unmeasured"] = float(f"{unmeasured(rows, build({**constants, **_kept(kept)})):.2g}")
    kept["reaches"] = reaches(rows, build({**constants, **_kept(kept)}))
    if given.out:
        when = dt.datetime.now(dt.UTC).date().isoformat()
        with given.out.open("w", encoding="utf-8") as file:
            file.write(HEADER)
            yaml.dump({"fitted": {"date": when, "rows": len(rows)}, **constants, **_kept(kept)}, file)


def _kept(catalog: dict[str, Any]) -> dict[str, Any]:
    """Return what no fit finds: whose engine a trainer is like; errors and reaches."""
    return {key: catalog[key] for key in ("trainers", "errors", "reaches")}


if __name__ == "__main__":
    main()
