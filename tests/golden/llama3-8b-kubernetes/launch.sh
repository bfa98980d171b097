#!/usr/bin/env bash
# Starts llama3-8b-kubernetes: 64 ranks (TP 1 x PP 1 x DP 64, ZeRO-3) in 8 pods, as the PyTorchJob of job.json.
# By hand: bash launch.sh, on a host that has the job's volumes mounted where the pods have them, with dsforge's
# environment active. The bundle, the recipe's folder and the folder this is started in must lie there.
# Relative paths of the recipe start from DSFORGE_ROOT, the folder the recipe lies in.
set -euo pipefail
dsforge_here=$(CDPATH= cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
dsforge_python=$(command -v -- "${DSFORGE_PYTHON:-python3}") || dsforge_python=
if [ -z "$dsforge_python" ] || ! "$dsforge_python" -c 'import dsforge.launch.kubernetes.job'; then
  printf 'dsforge: no Python with dsforge: activate its environment, or set DSFORGE_PYTHON\n' >&2
  exit 3
fi
# A restart of dsforge launch may have taken a spare in the place of a host.
dsforge_hosts="${DSFORGE_HOSTFILE:-$dsforge_here/hostfile}"

# The recipe's variables stand in job.json; here they would be the client's.

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
dsforge_checkpoints=checkpoints/llama3-8b-kubernetes
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

export DSFORGE_BUNDLE="$dsforge_here"
# Without the marks by which what a run has left is found and killed: whoever else is dead, it deletes the job.
dsforge_words=(
  env -u DSFORGE_RUN_ID -u DSFORGE_ATTEMPT_DIR
  "$dsforge_python" -u -m dsforge.launch.kubernetes.job
  --manifest "$dsforge_here/job.json"
  --attempt "$DSFORGE_ATTEMPT_DIR"
  ${DSFORGE_RUN_ID:+--run "$DSFORGE_RUN_ID"}
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
