#!/usr/bin/env bash
# Starts llama3-8b-fsdp: 8 ranks (TP 1 x PP 1 x DP 8, ZeRO-3) on this machine.
# `dsforge launch` runs exactly this file and watches it. By hand: bash launch.sh
# Relative paths of the recipe start from DSFORGE_ROOT, the folder the recipe lies in.
set -euo pipefail
dsforge_here=$(CDPATH= cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)


# The launcher numbers GPUs from 0; each rank takes its own from the list it was started with.
export DSFORGE_VISIBLE_DEVICES="${DSFORGE_VISIBLE_DEVICES:-${CUDA_VISIBLE_DEVICES:-}}"
export DS_ENV_FILE="$dsforge_here/environment"
export DSFORGE_PLAN="$dsforge_here/plan.json"
export DSFORGE_ROOT="${DSFORGE_ROOT:-$PWD}"
if [ -z "${DSFORGE_ATTEMPT_DIR:-}" ]; then
  # By hand: the next attempt that nobody has taken; making its folder is what takes it.
  dsforge_attempt=1
  mkdir -p -- "$PWD/dsforge-run"
  until mkdir -- "$PWD/dsforge-run/attempt-$dsforge_attempt" 2>/dev/null; do
    [ -e "$PWD/dsforge-run/attempt-$dsforge_attempt" ] || mkdir -- "$PWD/dsforge-run/attempt-$dsforge_attempt"
    dsforge_attempt=$((dsforge_attempt + 1))
  done
  DSFORGE_ATTEMPT_DIR="$PWD/dsforge-run/attempt-$dsforge_attempt"
fi
export DSFORGE_ATTEMPT_DIR
dsforge_checkpoints=checkpoints/llama3-8b-fsdp
case $dsforge_checkpoints in
  /*) ;;
  *) dsforge_checkpoints="$DSFORGE_ROOT/$dsforge_checkpoints" ;;
esac
export DSFORGE_CHECKPOINT_DIR="${DSFORGE_CHECKPOINT_DIR:-$dsforge_checkpoints}"
mkdir -p -- "$DSFORGE_ATTEMPT_DIR"

exec "${DSFORGE_DEEPSPEED:-deepspeed}" \
  --hostfile "$dsforge_here/hostfile" \
  --no_ssh_check \
  --master_addr 127.0.0.1 \
  --master_port "${MASTER_PORT:-29500}" \
  --no_local_rank \
  --module dsforge.rank.main dsforge.train.main
