#!/usr/bin/env bash
# Starts llama3-8b-mpich: 64 ranks (TP 1 x PP 1 x DP 64, ZeRO-3) on the 8 hosts of hostfile,
# by mpiexec of MPICH over ssh. By hand: bash launch.sh, on a host that reaches all of them, with dsforge's environment active.
# The bundle, the recipe's folder and the folder this is started in must be the same on every host.
# Relative paths of the recipe start from DSFORGE_ROOT, the folder the recipe lies in.
set -euo pipefail
dsforge_here=$(CDPATH= cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
dsforge_python=$(command -v -- "${DSFORGE_PYTHON:-python3}") || dsforge_python=
if [ -z "$dsforge_python" ] || ! "$dsforge_python" -c 'import dsforge.rank.main'; then
  printf 'dsforge: no Python with dsforge: activate its environment, or set DSFORGE_PYTHON\n' >&2
  exit 3
fi
# A restart of dsforge launch may have taken a spare in the place of a host.
dsforge_hosts="${DSFORGE_HOSTFILE:-$dsforge_here/hostfile}"
dsforge_mpi=$(command -v mpiexec.hydra) || dsforge_mpi=
case $([ -z "$dsforge_mpi" ] || "$dsforge_mpi" --version) in
  *HYDRA*) ;;
  *)
    printf 'dsforge: no mpiexec.hydra of MPICH on the PATH\n' >&2
    exit 3
    ;;
esac

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

read -r MASTER_ADDR dsforge_slots < "$dsforge_hosts"
export MASTER_ADDR
export MASTER_PORT="${MASTER_PORT:-29500}"
# This may itself be started by a rank of something else.
unset -v RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK CROSS_RANK

dsforge_ssh="-o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=5 -o ServerAliveCountMax=3${DSFORGE_SSH_ARGS:+ $DSFORGE_SSH_ARGS}"
case $dsforge_ssh in
  *[!A-Za-z0-9\ _./,:=@%+~^-]*)
    printf 'dsforge: MPI hands DSFORGE_SSH_ARGS on without quotes: use A-Z a-z 0-9 _./,:=@%%+~^- in it, and spaces\n' >&2
    exit 3
    ;;
esac
# Variables go by name: no value of them stands on a command line.
dsforge_names=()
for dsforge_name in CUDA_HOME DSFORGE_ATTEMPT_DIR DSFORGE_CHECKPOINT_DIR DSFORGE_CORPUS DSFORGE_DS_CONFIG DSFORGE_DUMP_PARAMETERS DSFORGE_LEASE DSFORGE_PLAN DSFORGE_ROOT DSFORGE_RUN_ID DSFORGE_SECRETS LD_LIBRARY_PATH NCCL_DEBUG OMP_NUM_THREADS PATH PYTHONPATH TORCH_EXTENSIONS_DIR TORCH_NCCL_ASYNC_ERROR_HANDLING XDG_CACHE_HOME MASTER_ADDR MASTER_PORT; do
  [ -z "${!dsforge_name+set}" ] || dsforge_names+=("$dsforge_name")
done
# mpiexec says nothing when it loses a host; ssh does, unless it is told to be quiet.
export HYDRA_LAUNCHER_EXTRA_ARGS="-o LogLevel=INFO $dsforge_ssh"
dsforge_listed=
while read -r dsforge_host dsforge_slots; do
  dsforge_listed+=,$dsforge_host:${dsforge_slots#slots=}
done < "$dsforge_hosts"
dsforge_list=$(IFS=,; printf %s "${dsforge_names[*]}")
# Over ssh from here, also inside an allocation of a scheduler.
dsforge_words=(-launcher ssh -rmk user -bind-to none -wdir "$PWD")
dsforge_words+=(-hosts "${dsforge_listed#,}" -n 64 -genvlist "$dsforge_list")
if [ -n "${DSFORGE_LEASE:-}" ]; then
  # The supervisor ends the other ranks, and gives them the time to say why they ended.
  dsforge_words+=(-disable-auto-cleanup)
fi
dsforge_words=("$dsforge_mpi" "${dsforge_words[@]}" "$dsforge_python" -u -m dsforge.rank.main dsforge.train.main)

if [ -n "${DSFORGE_TELL:-}" ]; then
  # Asked by dsforge launch --dry-run: what would start now, and under which variables.
  {
    env -0
    printf '\0'
    printf '%s\0' "${dsforge_words[@]}"
  } > "$DSFORGE_TELL"
  exit
fi
if [ -n "${DSFORGE_LEASE:-}" ]; then
  exec "${dsforge_words[@]}"
fi
# By hand: who tells this script to stop asks the ranks for a checkpoint, by a file that they look for: MPI ends
# them otherwise, or tells ssh too. Asked again, they end at once.
dsforge_asked=
dsforge_ask() {
  printf %s "${dsforge_asked:-$1}" > "$DSFORGE_ATTEMPT_DIR/stop"
  dsforge_asked=3
}
trap 'dsforge_ask 2' INT
trap 'dsforge_ask 15' TERM HUP
setsid "${dsforge_words[@]}" < /dev/null &
dsforge_started=$!
# A signal ends `wait` early. The last code counts: bash may have lost it when it is asked for again.
while :; do
  dsforge_code=0
  wait "$dsforge_started" || dsforge_code=$?
  kill -0 "$dsforge_started" 2>/dev/null || break
done
exit "$dsforge_code"
