"""How fast the command line answers, beside its peer: `dsforge --help` against `deepspeed --help`.

Run: make bench. Prints one JSON object: medians in seconds over the rounds, their ratio, the machine.
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 5
BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parent.parent


def seconds(command: list[str]) -> float:
    """Return the wall time of one whole process."""
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    """Interleave the commands, so that a busy machine slows both."""
    commands = {
        "dsforge --help": [str(BIN / "dsforge"), "--help"],
        "deepspeed --help": [str(BIN / "deepspeed"), "--help"],
        "dsforge plan (175B on 1,024 GPUs)": [
            *(str(BIN / "dsforge"), "plan", "--json"),
            str(ROOT / "recipes" / "gpt3-175b-1024a100.yaml"),
        ],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            times[name].append(seconds(command))
    medians = {name: round(statistics.median(values), 3) for name, values in times.items()}
    print(
        json.dumps(
            {
                "machine": f"{platform.machine()}, Python {platform.python_version()}",
                "rounds": ROUNDS,
                "median_seconds": medians,
                "deepspeed_over_dsforge": round(medians["deepspeed --help"] / medians["dsforge --help"], 1),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
