"""Stands in for Megatron's pretrain_gpt.py: parses the real options and prints what arrived, then log lines.

OPTIONS_OF names the flavour whose table is declared; `seen-RANK.json` is written beside this file.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import deepspeed.compression.compress as absent  # no deepspeed of today has it: a stand-in serves it

from tests.external_support.recipes import parser


def main() -> None:
    given = vars(parser(os.environ["OPTIONS_OF"]).parse_args())
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    world = {name: os.environ[name] for name in names}
    rank, size = int(world["RANK"]), int(world["WORLD_SIZE"])
    seen = {"world": world, "words": sys.argv[1:], "arguments": given, "absent": absent.__name__}
    Path(__file__).with_name(f"seen-{rank}.json").write_text(json.dumps(seen))
    if rank == size - 1:
        sys.stdout.write("> initialized tensor model parallel with size 1\n")
        for step in (1, 2, 3):
            sys.stdout.write(
                f" [2025-01-01 10:00:00] iteration {step:8d}/{3:8d} | consumed samples: {step * 8:12d} | "
                f"elapsed time per iteration (ms): 250.0 | learning rate: 3.000E-04 | "
                f"global batch size:     8 | "
                f"lm loss: {8 / step:.6E} | loss scale: 1.0 | grad norm: 1.500 |\n"
            )
        sys.stdout.write(
            " validation loss at iteration 3 | lm loss value: 2.500000E+00 | lm loss PPL: 1.2E+01 | \n"
        )


main()
