"""Fits the constants of the cost model to published measurements and writes calibration.yaml or memory.yaml.

Run: python benchmarks/fit_catalog.py --throughput FILE [--out FILE] [--leave-out], or with --memory FILE for
the memory model (fit_memory.py). Constants belong to a GPU
generation, an engine, a fabric or to all; none to a source or a row. Sources weigh by the square root of
their rows, and errors beyond a few per cent weigh less, so that no source and no odd row leads. `--leave-out`
fits once without each source and prints how that source is then predicted.
"""

from __future__ import annotations

import argparse
import collections
import copy
import datetime as dt
from pathlib import Path
from typing import Any

import fit_memory
import numpy as np
from published import Measured, read
from ruamel.yaml import YAML
from scipy.optimize import least_squares

from dsforge.cost.calibration import Calibration, build

HERE = Path(__file__).resolve().parent
PRIORS = HERE / "priors.yaml"
GROUPS = ("dense 16-bit", "dense fp8", "Blackwell dense", "MoE")
_SHARES = {"matmul", "link", "tp_hidden", "dp_hidden", "shard_hidden", "network_share", "fabrics"}
_ROBUST = 0.03
_PRIOR = 0.01
"""What a factor of e away from a prior weighs: enough where the rows say nothing, little elsewhere."""
Key = tuple[str, ...]

_ENGINES = (
    "megatron-core",
    "megatron",
    "megatron-deepspeed",
    "fsdp",
    "fsdp2",
    "ddp",
    "nanotron",
    "deepspeed",
)
FITTED: dict[str, list[Key]] = {
    "dense 16-bit": [
        *(
            ("generations", name, key)
            for name in ("ampere", "hopper")
            for key in ("matmul", "attention", "link")
        ),
        *(("generations", name, "early_attention") for name in ("ampere", "hopper")),
        *(("engines", name, "elementwise") for name in ("megatron-core", "megatron", "fsdp", "fsdp2")),
        *(("engines", name, "overhead") for name in ("megatron-deepspeed", "nanotron")),
        ("engines", "megatron-core", "tp_hidden"),
        ("engines", "megatron-core", "dp_hidden"),
        ("engines", "fsdp", "shard_hidden"),
        ("engines", "deepspeed", "network_share"),
        *(("fabrics", name) for name in ("infiniband", "omni-path", "roce", "efa")),
        *(
            ("common", name)
            for name in (
                *("logits", "softmax", "odd_head", "uneven_head", "exposed", "message_seconds"),
                *("rank_seconds", "operators_recomputed", "ring_hidden", "offload"),
            )
        ),
    ],
    "dense fp8": [("generations", "hopper", "fp8"), ("common", "cast")],
    "Blackwell dense": [
        *(("generations", "blackwell", key) for key in ("matmul", "attention", "link", "fp8", "fp4")),
        ("generations", "blackwell-ultra", "matmul"),
    ],
    "MoE": [
        ("common", "expert_width"),
        ("common", "dispatch"),
        ("generations", "hopper", "expert_layer_seconds"),
        ("generations", "blackwell", "expert_layer_seconds"),
    ],
}
TIED: dict[Key, list[Key]] = {
    ("engines", "megatron", "elementwise"): [("engines", "megatron-deepspeed", "elementwise")],
    ("engines", "fsdp", "elementwise"): [("engines", "ddp", "elementwise")],
    ("engines", "fsdp2", "elementwise"): [
        ("engines", "deepspeed", "elementwise"),
        ("engines", "nanotron", "elementwise"),
    ],
    ("engines", "megatron-core", "dp_hidden"): [
        ("engines", name, "dp_hidden") for name in ("ddp", "deepspeed")
    ],
    ("engines", "fsdp", "shard_hidden"): [
        ("engines", name, "shard_hidden") for name in ("fsdp2", "deepspeed", "megatron-core")
    ],
    ("generations", "ampere", "matmul"): [("generations", "volta", "matmul")],
    ("generations", "blackwell", "attention"): [("generations", "blackwell-ultra", "attention")],
    ("generations", "blackwell", "link"): [("generations", "blackwell-ultra", "link")],
    ("generations", "blackwell", "fp8"): [("generations", "blackwell-ultra", "fp8")],
    ("generations", "blackwell", "fp4"): [("generations", "blackwell-ultra", "fp4")],
    ("generations", "blackwell", "expert_layer_seconds"): [
        ("generations", "blackwell-ultra", "expert_layer_seconds")
    ],
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
    weights = np.array([counts[row.row["source"]] ** -0.25 for row in rows])
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


def left_out(rows: list[Measured], start: dict[str, Any]) -> None:
    """Print how well constants that were fitted without a source of dense 16-bit rows predict it."""
    dense = [row for row in rows if row.job is not None and row.group == GROUPS[0]]
    means = []
    for source in sorted({row.row["source"] for row in dense}):
        others = [row for row in dense if row.row["source"] != source]
        constants = build(fitted(others, start, GROUPS[:1]))
        mine = [row for row in dense if row.row["source"] == source]
        own = [abs(row.predicted(constants) / row.seconds - 1) for row in mine]
        means.append(sum(own) / len(own))
        print(f"  {means[-1]:.3f} {len(own):4} {source}")
    print(f"left out, mean over sources: {sum(means) / len(means):.4f}")


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
    yaml.default_flow_style = None
    start = yaml.load(given.start.read_text("utf-8"))
    rows = list(read(given.throughput))
    constants = fitted(rows, start)
    for group, sources in errors(rows, build(constants)).items():
        every = [error for own in sources.values() for error in own]
        by_source = sum(sum(own) / len(own) for own in sources.values()) / max(1, len(sources))
        print(f"{group}: {len(every)} rows, mean {sum(every) / len(every):.4f}, by source {by_source:.4f}")
    print(f"{sum(len(keys) for keys in FITTED.values())} constants")
    if given.leave_out:
        left_out(rows, start)
    if given.out:
        constants["fitted"] = {"date": dt.datetime.now(dt.UTC).date().isoformat(), "rows": len(rows)}
        with given.out.open("w", encoding="utf-8") as file:
            yaml.dump(constants, file)


if __name__ == "__main__":
    main()
