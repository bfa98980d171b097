#!/usr/bin/env bash
# One command on one GPU of 40 GB or more, under eight minutes once the environment stands: benchmarks/gpu.sh
# It trains with forge; --trainer NAME, once or more, trains with others, each under eight minutes.
# Without a GPU: benchmarks/gpu.sh --toy. DSFORGE_PYTHON names another environment's interpreter.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

python=${DSFORGE_PYTHON:-.venv/bin/python}
[ -x "$python" ] || make .venv/.ready >&2
# One GPU is measured; the driver's list and the ranks must mean the same one.
export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" benchmarks/gpu.py "$@"
