#!/usr/bin/env bash
# Starts gpt2-ddp: 8 ranks (TP 1 x PP 1 x DP 8, ZeRO-0) on this machine.
# `dsforge launch` runs exactly this file and watches it. By hand: bash launch.sh
# Relative paths of the recipe start from DSFORGE_ROOT, the folder the recipe lies in.
set -euo pipefail
dsforge_here=$(CDPATH= cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

# NCCL writes the cause of an error into the rank's log, it is silent otherwise
export NCCL_DEBUG=WARN
# as torchrun sets it, here under every launcher: the ranks of a host do not fight over its cores
export OMP_NUM_THREADS=1
# a collective that fails or outlasts launch.collective_timeout ends its rank, on every host
export TORCH_NCCL_ASYNC_ERROR_HANDLING=3

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
dsforge_checkpoints=checkpoints/gpt2-ddp
case $dsforge_checkpoints in
  /*) ;;
  *) dsforge_checkpoints="$DSFORGE_ROOT/$dsforge_checkpoints" ;;
esac
export DSFORGE_CHECKPOINT_DIR="${DSFORGE_CHECKPOINT_DIR:-$dsforge_checkpoints}"
# No data in the recipe: the built-in corpus, made once and kept in the user's cache.
if [ -z "${DSFORGE_CORPUS:-}" ]; then
  DSFORGE_CORPUS=$(dsforge data prep --builtin --vocab 4096)
fi
export DSFORGE_CORPUS
mkdir -p -- "$DSFORGE_ATTEMPT_DIR"

dsforge_words=(
  "${DSFORGE_DEEPSPEED:-deepspeed}"
  --hostfile "$dsforge_here/hostfile"
  --no_ssh_check
  --master_addr 127.0.0.1
  --master_port "${MASTER_PORT:-29500}"
  --no_local_rank
  --module dsforge.rank.main dsforge.train.main
)

if [ -n "${DSFORGE_TELL:-}" ]; then
  # Asked by dsforge launch --dry-run: what would start now, and under which variables.
  {
    env -0
    printf '\0'
    printf '%s\0' "${dsforge_words[@]}"
  } > "$DSFORGE_TELL"
  exit
fi
exec "${dsforge_words[@]}"
