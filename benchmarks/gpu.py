"""How fast a trainer trains on one GPU, and how much memory it takes beside the plan's figures.

Run: benchmarks/gpu.sh. A table goes to stderr, one JSON object to stdout. bf16, no CUDA graphs; FLOP counted
as `dsforge.layout.flops` says: 6 N + 12 l w s a token, without recomputed ones.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measure
from fitting import Candidate, first_that_fits

from dsforge.base.units import format_bytes, format_count
from dsforge.catalog.tables import Hardware, find_hardware, hardware, hardware_of_device
from dsforge.layout.flops import flops_per_token
from dsforge.plan.types import Plan

RECIPE = Path(__file__).resolve().parent / "gpu.yaml"
LIMIT_SECONDS = 450.0
"""For all shapes of a trainer: each ends within eight minutes."""
TRAINERS: dict[str, tuple[str, ...]] = {
    "forge": (),
    "megatron-core": (),
    "transformers": (),
    "fsdp": ("parallel.zero=3",),
    "ddp": ("parallel.zero=0",),
}
"""Trainers that are measured, and what each changes of the recipe."""
CONVENTION = "6 N + 12 layers x (heads x head width) x sequence a token, N without the input embeddings"
_SMI = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits")


@dataclass(frozen=True)
class Device:
    """What is trained on. `kind`: its row of the catalogue, None for one that is not there."""

    name: str
    driver: str
    memory_bytes: int
    kind: Hardware | None

    def planned_as(self) -> Hardware:
        """Return the row to plan with: its own, else the largest that does not promise more memory."""
        if self.kind is not None:
            return self.kind
        known = [row for row in hardware().values() if row.memory_bytes]
        smaller = [row for row in known if row.memory_bytes <= self.memory_bytes]
        if not smaller:
            sys.exit(f"{self.name} has {format_bytes(self.memory_bytes)}: too little to train these shapes")
        return max(smaller, key=lambda row: row.memory_bytes)

    def as_dict(self) -> dict[str, Any]:
        """Return what a report says of it."""
        memory = {"memory_bytes": self.memory_bytes, "planned_as": self.planned_as().name}
        return {"name": self.name, "driver": self.driver, **memory}

    def peak_flops(self, precision: str) -> float | None:
        """Return its dense FLOP/s, None when they are not known."""
        peak = self.kind.peak_tflops.get(precision) if self.kind else None
        return peak * 1e12 if peak else None


@dataclass(frozen=True)
class Shape:
    """A profile of gpu.yaml and the sizes of it to try, the most wanted first."""

    profile: str
    layers: tuple[int, ...]
    micros: tuple[int, ...]

    def candidates(self) -> Iterator[Candidate]:
        """Yield every size, fewer samples before fewer layers."""
        for layers in self.layers:
            for micro in self.micros:
                yield Candidate(layers, micro)


SHAPES = (Shape("1b", (22,), (16, 8, 4, 2, 1)), Shape("7b-width", tuple(range(32, 0, -1)), (4,)))
TOY = (Shape("toy", (4, 3, 2, 1), (2, 1)),)
TOY_DEVICE = Device("CPU, as a stand-in for a GPU of 7 MB", "none", 7_000_000, find_hardware("cpu"))


def first_gpu() -> Device:
    """Return the first GPU that CUDA_VISIBLE_DEVICES leaves; exit without one."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    try:
        done = subprocess.run([*_SMI, "-i", chosen], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"no GPU: nvidia-smi says {error}; `benchmarks/gpu.sh --toy` runs the logic on a CPU")
    name, driver, mebibytes = (part.strip() for part in done.stdout.splitlines()[0].split(","))
    return Device(name, driver, int(mebibytes) * 2**20, hardware_of_device(name))


def changes_for(trainer: str, device: Device) -> list[str]:
    """Return what a trainer and a device change of the recipe."""
    return [f"cluster.gpu={device.planned_as().name}", f"trainer={trainer}", *TRAINERS[trainer]]


def train(trainer: str, shape: Shape, device: Device, folder: Path, limit_seconds: float) -> dict[str, Any]:
    """Train the largest size of a shape that fits and return its figures, or why there are none."""
    named = {"trainer": trainer, "shape": shape.profile}
    changes = changes_for(trainer, device)
    found = first_that_fits(RECIPE, shape.profile, changes, shape.candidates(), device.memory_bytes)
    if found is None:
        return {**named, "failed": "no size of it fits this memory"}
    candidate, plan = found
    words = [measure.BIN / "dsforge", "launch", RECIPE, *changes, *candidate.changes()]
    words += ["--profile", shape.profile, "--runs", folder, "--json"]
    try:
        done = subprocess.run(
            [str(word) for word in words],
            env=measure.environment(),
            capture_output=True,
            text=True,
            timeout=limit_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {**named, "failed": f"it took more than {limit_seconds:.0f} s"}
    if done.returncode != 0:
        return {**named, "failed": done.stderr[-2000:]}
    attempt = Path(json.loads(done.stdout)["run"], "attempt-1")
    return {**named, **figures(plan, device, attempt)}


def measured(trainer: str, shapes: tuple[Shape, ...], device: Device) -> Iterator[dict[str, Any]]:
    """Train each shape with a trainer; the later ones have what time is left."""
    ends = time.monotonic() + LIMIT_SECONDS
    with tempfile.TemporaryDirectory() as folder:
        for shape in shapes:
            yield train(trainer, shape, device, Path(folder), ends - time.monotonic())


def figures(plan: Plan, device: Device, attempt: Path) -> dict[str, Any]:
    """Return what an attempt's records say beside its plan."""
    steps = measure.read_steps(attempt / "metrics.jsonl")
    lines = [json.loads(line) for line in (attempt / "events.jsonl").read_text("utf-8").splitlines()]
    events = {line["name"]: line["data"] for line in lines}
    model, batch, counts = plan.model, plan.batch, plan.parameters
    multiplied = counts.total - counts.by_component.get("position_embedding", 0)
    if not model.tied:
        multiplied -= counts.by_component["word_embedding"]
    tokens_per_second = batch.global_size * batch.seq_len / steps.seconds
    flops = flops_per_token(multiplied, model.layers, model.heads * model.head_dim, batch.seq_len)
    peak = device.peak_flops(plan.train.precision)
    states = plan.layout.fullest_rank_bytes
    return {
        "layers": model.layers,
        "hidden": model.hidden,
        "parameters": counts.total,
        "batch": batch.model_dump(),
        "recompute": plan.train.recompute,
        "zero": plan.layout.zero,
        "precision": plan.train.precision,
        "tokens_per_second": round(tokens_per_second, 1),
        "flops_per_token": flops,
        "model_tflops": round(flops * tokens_per_second / 1e12, 4),
        "mfu": round(flops * tokens_per_second / peak, 4) if peak else None,
        "planned_state_bytes": states,
        "peak_bytes": events["finished"]["memory"],
        "losses": [round(steps.losses[0], 3), round(steps.losses[-1], 3)],
        "fused": events["built"]["fused"],
    }


def table(results: list[dict[str, Any]]) -> str:
    """Return the figures for people."""
    rows = [
        (
            "trainer",
            "shape",
            "layers",
            "parameters",
            "tokens/s",
            "TFLOP/s",
            "MFU",
            "states planned",
            "peak memory",
        )
    ]
    for found in results:
        if "failed" in found:
            why = "failed: " + found["failed"].strip().splitlines()[-1]
            rows.append((found["trainer"], found["shape"], why, *[""] * 6))
            continue
        peaks = ", ".join(f"{format_bytes(size)} {name}" for name, size in found["peak_bytes"].items())
        rows.append(
            (
                found["trainer"],
                found["shape"],
                str(found["layers"]),
                format_count(found["parameters"]),
                f"{found['tokens_per_second']:,.0f}",
                f"{found['model_tflops']:.3g}",
                f"{found['mfu']:.1%}" if found["mfu"] is not None else "peak not known",
                format_bytes(found["planned_state_bytes"]),
                peaks,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    )


def main() -> None:
    """Measure every shape; exit 1 when one gave no figures."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--toy", action="store_true", help="a tiny shape on a CPU: the logic, no figures")
    parser.add_argument("--trainer", choices=tuple(TRAINERS), action="append", help="by default forge")
    choice = parser.parse_args()
    shapes, device = (TOY, TOY_DEVICE) if choice.toy else (SHAPES, first_gpu())
    machine = {**measure.machine(), "gpu": device.as_dict(), "cuda": torch.version.cuda}
    results = [
        figure for trainer in choice.trainer or ["forge"] for figure in measured(trainer, shapes, device)
    ]
    print(f"{device.name}, driver {device.driver}\n{table(results)}", file=sys.stderr)
    measure.report("gpu", {"shapes": results}, flop_convention=CONVENTION, machine=machine)
    sys.exit(any("failed" in found for found in results))


if __name__ == "__main__":
    main()
