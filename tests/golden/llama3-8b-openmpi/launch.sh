#!/usr/bin/env bash
# Starts llama3-8b-openmpi: 64 ranks (TP 1 x PP 1 x DP 64, ZeRO-3) on the 8 hosts of hostfile,
# by mpirun of Open MPI over ssh. By hand: bash launch.sh, on a host that reaches all of them, with dsforge's environment active.
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
dsforge_mpi=$(command -v mpirun.openmpi || command -v mpirun) || dsforge_mpi=
case $([ -z "$dsforge_mpi" ] || "$dsforge_mpi" --version) in
  *'(Open MPI) 4.'* | *'(OpenRTE) 4.'*) ;;
  *)
    printf 'dsforge: no mpirun of Open MPI 4 on the PATH\n' >&2
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
# mpirun writes these into a command line of the remote shell, with half of the quoting.
while IFS= read -r dsforge_name; do
  case $dsforge_name in OMPI_MCA_*) ;; *) continue ;; esac
  case ${!dsforge_name} in
    *[!A-Za-z0-9\ _./,:=@%+~^-]*)
      printf 'dsforge: mpirun cannot hand on %s: use A-Z a-z 0-9 _./,:=@%%+~^- in it, and spaces\n' "$dsforge_name" >&2
      exit 3
      ;;
  esac
done < <(compgen -e)
dsforge_words=(--map-by seq --bind-to none --wdir "$PWD")
dsforge_mca() {
  dsforge_words+=(--mca "$1" "$2")
}
if [ "$EUID" -eq 0 ]; then
  printf 'dsforge: started as root, which mpirun is told to allow (--allow-run-as-root)\n' >&2
  dsforge_words+=(--allow-run-as-root)
fi
# Over ssh from here, also inside an allocation of a scheduler; a host's name is kept as it is written.
dsforge_mca plm rsh
dsforge_mca ras '^slurm,tm,gridengine,lsf,alps,loadleveler'
dsforge_mca plm_rsh_args "$dsforge_ssh"
dsforge_mca plm_rsh_no_tree_spawn 1
dsforge_mca orte_leave_session_attached 1
dsforge_mca orte_keep_fqdn_hostnames 1
# A host that is gone is noticed within 15 s.
dsforge_mca oob_tcp_keepalive_time 5
dsforge_mca oob_tcp_keepalive_intvl 5
dsforge_mca oob_tcp_keepalive_probes 2
# When one rank has ended badly the others have 20 s to save and end, and 20 more when they are told.
dsforge_mca odls_base_sigkill_timeout 20
if [ -n "${DSFORGE_LEASE:-}" ]; then
  # The supervisor ends the other ranks, and gives them the time to say why they ended.
  dsforge_mca orte_abort_on_non_zero_status 0
fi
# One word a rank, in the order of the ranks: by slots mpirun begins with its own host, wherever that stands.
while read -r dsforge_host dsforge_slots; do
  dsforge_ranks=$dsforge_host
  for ((dsforge_rank = 1; dsforge_rank < ${dsforge_slots#slots=}; dsforge_rank++)); do
    dsforge_ranks+=,$dsforge_host
  done
  dsforge_words+=(--host "$dsforge_ranks")
done < "$dsforge_hosts"
for dsforge_name in "${dsforge_names[@]}"; do
  dsforge_words+=(-x "$dsforge_name")
done
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
