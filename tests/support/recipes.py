"""Recipes to test with: the shipped ones, and a small legal one to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsforge.base.errors import DsforgeError, Finding
from dsforge.catalog.engines.capabilities import capabilities
from dsforge.plan.resolve import examine, make_plan
from dsforge.plan.types import Plan
from dsforge.recipe.document import Document
from dsforge.recipe.load import LoadedRecipe, check, load_recipe, merge

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "recipes").glob("*.yaml"))
OWN = [path for path in SHIPPED if "trainer: external" not in path.read_text("utf-8")]
"""Shipped recipes that a trainer of ours runs."""
CONFIGURED = [path for path in OWN if capabilities(load_recipe(path).recipe.trainer).deepspeed]
"""Of these the ones whose trainer is configured by a DeepSpeed JSON."""

SMALL = """\
version: 1
name: small
model: {arch: llama, layers: 4, hidden: 64, heads: 4, kv_heads: 2, ffn_hidden: 176, vocab: 512}
cluster: {nodes: 1, gpus_per_node: 8, gpu: cpu}
parallel: {tp: 2, pp: 2, dp: 2, zero: 1}
batch: {global: 32, micro: 2, seq_len: 64}
train: {steps: 30, precision: fp32}
optimizer: {lr: 3.0e-3, warmup_steps: 3}
"""


def small() -> dict[str, Any]:
    """Return the small recipe as plain data."""
    return {
        "version": 1,
        "name": "small",
        "model": {
            "arch": "llama",
            "layers": 4,
            "hidden": 64,
            "heads": 4,
            "kv_heads": 2,
            "ffn_hidden": 176,
            "vocab": 512,
        },
        "cluster": {"nodes": 1, "gpus_per_node": 8, "gpu": "cpu"},
        "parallel": {"tp": 2, "pp": 2, "dp": 2, "zero": 1},
        "batch": {"global": 32, "micro": 2, "seq_len": 64},
        "train": {"steps": 30, "precision": "fp32"},
    }


def loaded(*changes: dict[str, Any]) -> LoadedRecipe:
    """Return the small recipe with sections changed, as if it had been read from a file."""
    data = small()
    for change in changes:
        merge(data, change)
    document = Document(data=data)
    return LoadedRecipe(check(document), Path("small.yaml"), "", document)


def plan_of(*changes: dict[str, Any]) -> Plan:
    """Return the plan of the small recipe with sections changed, also where only an engine is at fault."""
    return make_plan(loaded(*changes), refuse=False)


def write(folder: Path, text: str = SMALL, name: str = "recipe.yaml") -> Path:
    """Write a recipe and return its path."""
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def findings_of(path: Path, *overrides: str) -> list[Finding]:
    """Return every finding of a recipe file, of loading it as well as of the rules."""
    try:
        return examine(load_recipe(path, overrides))
    except DsforgeError as fault:
        raise AssertionError(f"not loadable: {fault.message}") from fault
