#!/usr/bin/env bash
# Starts llama3-8b-torchrun: 64 ranks (TP 1 x PP 1 x DP 64, ZeRO-3) on the 8 hosts of hostfile,
# by torchrun on each, over ssh. By hand: bash launch.sh, on a host that reaches all of them, with dsforge's environment active.
# The bundle, the recipe's folder and the folder this is started in must be the same on every host.
# Relative paths of the recipe start from DSFORGE_ROOT, the folder the recipe lies in.
set -euo pipefail
dsforge_here=$(CDPATH= cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
dsforge_python=$(command -v -- "${DSFORGE_PYTHON:-python3}") || dsforge_python=
if [ -z "$dsforge_python" ] || ! "$dsforge_python" -c 'import dsforge.launch.fan_out'; then
  printf 'dsforge: no Python with dsforge: activate its environment, or set DSFORGE_PYTHON\n' >&2
  exit 3
fi
# A restart of dsforge launch may have taken a spare in the place of a host.
dsforge_hosts="${DSFORGE_HOSTFILE:-$dsforge_here/hostfile}"

# NCCL writes the cause of an error into the rank's log, it is silent otherwise
export NCCL_DEBUG=WARN
# as torchrun sets it, here under every launcher: the ranks of a host do not fight over its cores
export OMP_NUM_THREADS=1
# a collective that fails or outlasts launch.collective_timeout ends its rank, on every host
export TORCH_NCCL_ASYNC_ERROR_HANDLING=3

export DSFORGE_PLAN="$dsforge_here/plan.json"
export DSFORGE_DS_CONFIG="$dsforge_here/ds_config.json"
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
dsforge_checkpoints=checkpoints/llama3-8b-64h100
case $dsforge_checkpoints in
  /*) ;;
  *) dsforge_checkpoints="$DSFORGE_ROOT/$dsforge_checkpoints" ;;
esac
export DSFORGE_CHECKPOINT_DIR="${DSFORGE_CHECKPOINT_DIR:-$dsforge_checkpoints}"
# No data in the recipe: the built-in corpus, made once and kept in the user's cache.
if [ -z "${DSFORGE_CORPUS:-}" ]; then
  DSFORGE_CORPUS=$("$dsforge_python" -m dsforge.cli data prep --builtin --vocab 4096)
fi
export DSFORGE_CORPUS
mkdir -p -- "$DSFORGE_ATTEMPT_DIR"

# Variables go to the hosts through ssh's stdin: no value of them stands on a command line.
dsforge_words=(
  "$dsforge_python" -u -m dsforge.launch.fan_out
  --hostfile "$dsforge_hosts"
  --master-port "${MASTER_PORT:-29500}"
  --starter torchrun
  --pass CUDA_HOME
  --pass DSFORGE_ATTEMPT_DIR
  --pass DSFORGE_CHECKPOINT_DIR
  --pass DSFORGE_CORPUS
  --pass DSFORGE_DS_CONFIG
  --pass DSFORGE_DUMP_PARAMETERS
  --pass DSFORGE_LEASE
  --pass DSFORGE_PLAN
  --pass DSFORGE_ROOT
  --pass DSFORGE_RUN_ID
  --pass DSFORGE_SECRETS
  --pass LD_LIBRARY_PATH
  --pass NCCL_DEBUG
  --pass OMP_NUM_THREADS
  --pass PATH
  --pass PYTHONPATH
  --pass TORCH_EXTENSIONS_DIR
  --pass TORCH_NCCL_ASYNC_ERROR_HANDLING
  --pass XDG_CACHE_HOME
  -- dsforge.train.main
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
