"""How long the planner takes to find the best layout of a trillion parameters, all dimensions free.

Run: make bench. Prints one JSON object: by number of GPUs the medians in seconds of the search alone and of
the whole command, the steps that were worked out, and the layout that was found.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import measure

from dsforge.plan.ranking import opened, ranking
from dsforge.recipe.load import load_recipe

GPUS = (4096, 16384)
ROUNDS = 5
_RECIPE = """\
version: 1
model: megatron-1t
cluster: {nodes: 512, gpus_per_node: 8, gpu: h100-sxm-80gb}
batch: {global: 4096, seq_len: 2048}
train: {tokens: 1T tokens}
trainer: external
external: {flavour: megatron-lm, path: Megatron-LM}
"""


def main() -> None:
    """Search for each number of GPUs in turn and print the figures."""
    machine = measure.machine()
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "recipe.yaml"
        recipe.write_text(_RECIPE, "utf-8")
        results = {gpus: _search(recipe, gpus) for gpus in GPUS}
        for gpus, result in results.items():
            words = [*(measure.BIN / "dsforge", "plan", recipe), "--search", "--gpus", str(gpus), "--json"]
            result["command_seconds"] = round(median(measure.seconds(words) for _ in range(ROUNDS)), 2)
    first, last = (results[gpus]["search_seconds"] for gpus in GPUS)
    measure.report(
        "search",
        {"parameters": "1T", "gpus": results, "last_over_first": round(last / first, 2)},
        rounds=ROUNDS,
        machine=machine,
    )


def _search(recipe: Path, gpus: int) -> dict[str, Any]:
    loaded = opened(load_recipe(recipe), everything=True, gpus=gpus)
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        done = ranking(loaded, top=1, objective="time")
        seconds.append(time.perf_counter() - started)
    (found,) = done.found
    return {
        "search_seconds": round(median(seconds), 2),
        "steps_worked_out": done.costed,
        "layout": found.candidate.values(),
        "step_seconds": round(found.step.total, 2),
    }


if __name__ == "__main__":
    main()
