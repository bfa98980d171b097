"""Asks the installed DeepSpeed what it takes, and what it makes of a configuration; run as a process.

`python -m dsforge.train.probe` prints the table that `catalog/engines/deepspeed.yaml` keeps, as JSON;
`--as-yaml` prints that file. With `--config -` it reads a JSON configuration from stdin and says what the
library does with it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from typing import Any


def table() -> dict[str, Any]:
    """Return keys, removed keys, optimizers and schedulers of the installed version."""
    import deepspeed

    from dsforge.train.config_keys import ask_keys, ask_optimizers, ask_removed, ask_schedulers

    return {
        "version": deepspeed.__version__,
        "keys": ask_keys(),
        "removed": ask_removed(),
        "optimizers": ask_optimizers(),
        "schedulers": ask_schedulers(),
    }


def judge(config: dict[str, Any], data_parallel: int) -> dict[str, Any]:
    """Return what the library does with a configuration: accepted or why not, and the keys nobody read."""
    from dsforge.train.config_keys import read
    from dsforge.train.reads import Reads

    noted = Reads(config)
    try:
        made = read(noted, data_parallel)
    except Exception as fault:  # noqa: BLE001 - whatever a library raises here is its answer
        reason = f"{type(fault).__name__}: {fault}"
        return {"accepted": False, "reason": reason, "unread": []}
    # The top level is copied as a whole, which is no reading of any key.
    noted.opened = False
    return {
        "accepted": True,
        "reason": None,
        "unread": [list(path) for path in noted.unread()],
        "stage": int(made.zero_optimization_stage),
        "batch": [
            made.train_batch_size,
            made.train_micro_batch_size_per_gpu,
            made.gradient_accumulation_steps,
        ],
        "gradient_clipping": made.gradient_clipping,
        "bf16": bool(made.bfloat16_config.enabled),
        "fp16": bool(made.float16_config.enabled),
    }


def as_yaml(rows: dict[str, Any]) -> str:
    """Return the table as the catalogue keeps it: one key a line."""
    from dsforge.recipe.yaml_text import flow_text

    def lines(value: dict[str, Any], indent: str) -> list[str]:
        out = []
        for key, inner in value.items():
            if isinstance(inner, dict) and any(isinstance(one, dict) and one for one in inner.values()):
                out += [f"{indent}{flow_text(key)}:", *lines(inner, indent + "  ")]
            else:
                out.append(f"{indent}{flow_text(key)}: {flow_text(inner)}")
        return out

    head = (
        "# What DeepSpeed's configuration takes, asked of the library itself: python -m dsforge.train.probe "
        "--as-yaml.\n# A section that is not `checked` ignores a key that it does not know; one that is "
        "`open` hands its keys on.\n"
    )
    return head + "\n".join(lines(rows, "")) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Answer on stdout; what the libraries say while they load goes to stderr."""
    parser = argparse.ArgumentParser(prog="python -m dsforge.train.probe")
    parser.add_argument("--as-yaml", action="store_true")
    parser.add_argument("--config", choices=["-"])
    parser.add_argument("--data-parallel", type=int, default=1)
    chosen = parser.parse_args(arguments)
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with contextlib.redirect_stdout(sys.stderr):
        found: dict[str, Any] = {"table": table()}
        if chosen.config:
            found["verdict"] = judge(json.load(sys.stdin), chosen.data_parallel)
    with answer:
        answer.write(as_yaml(found["table"]) if chosen.as_yaml else json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
