"""Fits the constants of the cost model to published measurements and writes calibration.yaml.

Run: python benchmarks/fit_catalog.py --throughput FILE [--out FILE] [--leave-out]. Constants belong to a GPU
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

import numpy as np
from published import Measured, read
from ruamel.yaml import YAML
from scipy.optimize import least_squares

from dsforge.cost.calibration import Calibration, build

HERE = Path(__file__).resolve().parent
TABLE = HERE.parent / "dsforge" / "catalog" / "data" / "calibration.yaml"
GROUPS = ("dense 16-bit", "dense fp8", "Blackwell dense", "MoE")
_SHARES = {"matmul", "link", "tp_hidden", "dp_hidden", "shard_hidden", "network_share", "fabrics"}
_ROBUST = 0.03
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
        mine = [row for row in dense if row.row["source"] == source]
        own = [abs(row.predicted(constants) / row.seconds - 1) for row in mine]
        means.append(sum(own) / len(own))
        print(f"  {means[-1]:.3f} {len(own):4} {source}")
    print(f"left out, mean over sources: {sum(means) / len(means):.4f}")


def main() -> None:
    """Fit, tell and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--throughput", type=Path, required=True)
    parser.add_argument("--start", type=Path, default=TABLE)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--leave-out", action="store_true")
    given = parser.parse_args()
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
