"""Compares a layout's final parameters with the reference's. Run as a process by `verify`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from safetensors.torch import load_file

from dsforge.base.errors import DsforgeError
from dsforge.train.gather import gather


def largest_difference(dumped: Path, reference: Path) -> float:
    """Return the largest absolute difference of any parameter; DsforgeError when the names differ."""
    ours, theirs = gather(dumped), load_file(reference)
    if set(ours) != set(theirs):
        missing = ", ".join(sorted(set(ours) ^ set(theirs))[:5])
        raise DsforgeError("DSF342", f"the layout and the reference hold different parameters: {missing}")
    return max(float((ours[name].double() - theirs[name].double()).abs().max()) for name in ours)


def main() -> int:
    """Write {"max_abs_param_diff": x} to --out."""
    parser = argparse.ArgumentParser(prog="python -m dsforge.train.compare")
    parser.add_argument("--dumped", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    words = parser.parse_args()
    try:
        difference = largest_difference(words.dumped, words.reference)
    except DsforgeError as error:
        sys.stderr.write(error.told())
        return error.exit_code
    words.out.write_text(json.dumps({"max_abs_param_diff": difference}), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
