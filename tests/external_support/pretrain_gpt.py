"""Stands in for Megatron's pretrain_gpt.py: parses the real options, prints what arrived, and its log lines.

OPTIONS_OF names the flavour whose table is declared; `seen-RANK.json` is written beside this file. Imports
are made as Megatron-DeepSpeed makes them: what DeepSpeed no longer has, and what is asked for.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.external_support.recipes import parser

if os.environ["OPTIONS_OF"] == "megatron-deepspeed":
    from deepspeed.compression.compress import init_compression, redundancy_clean
else:
    init_compression = redundancy_clean = None

try:
    from flash_attn.flash_attn_interface import flash_attn_varlen_func
except ImportError:
    flash_attn_varlen_func = None

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "LOCAL_SIZE", "LOCAL_WORLD_SIZE")
WORKS = (
    " number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: 32.000 |"
    " tokens per gpu per second (tgs): 256.000 | TFLOPs: 0.01 | params(B): 0.00 | moe params(B): 0.00 |"
)


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> None:
    given = vars(parser(os.environ["OPTIONS_OF"]).parse_args())
    world = {name: os.environ[name] for name in NAMES}
    rank, size = int(world["RANK"]), int(world["WORLD_SIZE"])
    absent = (
        f"{init_compression.__module__}.{init_compression.__name__}" if redundancy_clean is not None else None
    )
    seen = {
        "world": world,
        "words": sys.argv[1:],
        "arguments": given,
        "absent": absent,
        "flash": flash_attn_varlen_func is not None,
        "minutes": os.environ.get("DEEPSPEED_TIMEOUT"),
    }
    Path(__file__).with_name(f"seen-{rank}.json").write_text(json.dumps(seen))
    if rank == 0:
        tell(f"using world size: {size}, data-parallel-size: {size}, tensor-model-parallel size: 1")
        tell("> initializing torch distributed ...")
        tell("> initialized tensor model parallel with size 1")
    if rank == size - 1:
        for step in range(1, int(os.environ.get("STEPS", "3")) + 1):
            tell(
                f" [2025-01-01 10:00:00] iteration {step:8d}/{3:8d} | consumed samples: {step * 8:12d} |"
                f" consumed tokens: {step * 128:12d} | elapsed time per iteration (ms): 250.0 |"
                f" learning rate: 3.000E-04 | global batch size:     8 | lm loss: {8 / step:.6E} |"
                f" loss scale: 1.0 | grad norm: 1.500 | actual seqlen:    16 |{WORKS}"
            )
        tell("-" * 80)
        tell(" validation loss at iteration 3 | lm loss value: 2.500000E+00 | lm loss PPL: 1.218249E+01 | ")
        tell("-" * 80)


main()
