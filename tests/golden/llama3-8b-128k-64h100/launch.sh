#!/usr/bin/env bash
# Starts llama3-8b-128k-64h100: 64 ranks (TP 8 x PP 1 x CP 2 x DP 4, ZeRO-1) on the 8 hosts of hostfile,
# through deepspeed's runner, pdsh and ssh. By hand: bash launch.sh, on a host that reaches all of them.
# The bundle, the recipe's folder and the folder this is started in must be the same on every host.
# Ctrl-C here makes deepspeed end every deepspeed launcher of yours on these hosts, other runs' included.
# Relative paths of the recipe start from DSFORGE_ROOT, the folder the recipe lies in.
set -euo pipefail
dsforge_here=$(CDPATH= cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

# deepspeed writes these two into a command line of the remote shell as they are.
if ! dsforge_deepspeed=$(command -v -- "${DSFORGE_DEEPSPEED:-deepspeed}"); then
  printf 'dsforge: no deepspeed on the PATH: activate its environment, or set DSFORGE_DEEPSPEED\n' >&2
  exit 3
fi
for dsforge_path in "$PWD" "$dsforge_deepspeed"; do
  case $dsforge_path in
    *[!A-Za-z0-9_./+=@:-]*)
      printf 'dsforge: deepspeed cannot start over pdsh from %q: use a path of A-Z a-z 0-9 _./+=@:-\n' "$dsforge_path" >&2
      exit 3
      ;;
  esac
done

# TP overlaps its all-reduce with compute only when kernels keep their launch order
export CUDA_DEVICE_MAX_CONNECTIONS=1
# NCCL writes the cause of an error into the rank's log, it is silent otherwise
export NCCL_DEBUG=WARN
# as torchrun sets it, here under every launcher: the ranks of a host do not fight over its cores
export OMP_NUM_THREADS=1
# a collective that fails or outlasts launch.collective_timeout ends its rank, on every host
export TORCH_NCCL_ASYNC_ERROR_HANDLING=3

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
dsforge_checkpoints=checkpoints/llama3-8b-128k
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

# A restart of dsforge launch may have taken a spare in the place of a host.
dsforge_hosts="${DSFORGE_HOSTFILE:-$dsforge_here/hostfile}"
# The file of variables that deepspeed exports on every host, in a form from which its own quoting, pdsh and
# the remote shell make the value again. Named by a whole path, it also keeps a ~/.deepspeed_env out.
dsforge_hand_over() {
  local dsforge_name dsforge_value
  for dsforge_name; do
    [ -n "${!dsforge_name+set}" ] || continue
    dsforge_value=${!dsforge_name}
    dsforge_value=${dsforge_value//\\/\\\\}
    dsforge_value=${dsforge_value//\"/\\\"}
    dsforge_value=${dsforge_value//\$/\\\$}
    dsforge_value=${dsforge_value//\`/\\\`}
    dsforge_value=${dsforge_value//%/%%}
    printf '%s=""%s""\n' "$dsforge_name" "$dsforge_value"
  done
}
read -r dsforge_first dsforge_slots < "$dsforge_hosts"
export DS_ENV_FILE="$DSFORGE_ATTEMPT_DIR/environment"
dsforge_hand_over CUDA_DEVICE_MAX_CONNECTIONS CUDA_HOME DSFORGE_ATTEMPT_DIR DSFORGE_CHECKPOINT_DIR DSFORGE_CORPUS DSFORGE_DS_CONFIG DSFORGE_DUMP_PARAMETERS DSFORGE_LEASE DSFORGE_PLAN DSFORGE_ROOT DSFORGE_RUN_ID DSFORGE_SECRETS LD_LIBRARY_PATH NCCL_DEBUG OMP_NUM_THREADS PATH PYTHONPATH TORCH_EXTENSIONS_DIR TORCH_NCCL_ASYNC_ERROR_HANDLING XDG_CACHE_HOME > "$DS_ENV_FILE"
# deepspeed would add what this shell happens to hold under these prefixes, read once more by the remote one.
while IFS= read -r dsforge_name; do
  case $dsforge_name in
    PYTHONPATH) ;;
    MLFLOW* | MV2* | NCCL* | PYTHON* | UCX*) unset -- "$dsforge_name" ;;
  esac
done < <(compgen -e)
export PDSH_SSH_ARGS_APPEND="-o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=5 -o ServerAliveCountMax=3${PDSH_SSH_ARGS_APPEND:+ $PDSH_SSH_ARGS_APPEND}"

dsforge_words=(
  "$dsforge_deepspeed"
  --hostfile "$dsforge_hosts"
  --launcher pdsh
  --force_multi
  --no_ssh_check
  --master_addr "$dsforge_first"
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
