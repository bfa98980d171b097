#!/usr/bin/env bash
#SBATCH --job-name=llama3-8b-slurm
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --partition=gpu
#SBATCH --time=1-00:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --export=PATH,LD_LIBRARY_PATH,PYTHONPATH,CUDA_HOME,XDG_CACHE_HOME,TORCH_EXTENSIONS_DIR,DSFORGE_PLAN,DSFORGE_DS_CONFIG,DSFORGE_ATTEMPT_DIR,DSFORGE_CHECKPOINT_DIR,DSFORGE_ROOT,DSFORGE_CORPUS,DSFORGE_RUN_ID,DSFORGE_LEASE,DSFORGE_DUMP_PARAMETERS,DSFORGE_SECRETS,HOME,LANG,USER,MASTER_PORT,DSFORGE_PYTHON,DSFORGE_RUN
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --exclusive
# Starts llama3-8b-slurm: 64 ranks (TP 1 x PP 1 x DP 64, ZeRO-3) on 8 hosts that Slurm chooses.
# Submit it from the recipe's folder, with dsforge's environment active: sbatch launch.sh, or bash launch.sh
# The bundle and the recipe's folder must be the same on every host.
# Relative paths of the recipe start from DSFORGE_ROOT, the folder the recipe lies in.
set -euo pipefail
dsforge_here=$(CDPATH= cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
if [ -z "${SLURM_JOB_ID:-}" ]; then
  exec sbatch "$dsforge_here/launch.sh"
fi
if [ ! -e "$dsforge_here/plan.json" ]; then
  # Slurm runs a copy of this file; the job knows where it was submitted from.
  dsforge_here=$(scontrol show job "$SLURM_JOB_ID" | sed -n 's/^ *Command=//p')
  dsforge_here=$(CDPATH= cd -- "$(dirname -- "$dsforge_here")" && pwd)
fi
dsforge_python=$(command -v -- "${DSFORGE_PYTHON:-python3}") || dsforge_python=
if [ -n "$dsforge_python" ] && [ -n "${DSFORGE_RUN:-}" ] && [ -z "${DSFORGE_LEASE:-}" ]; then
  # Submitted by dsforge launch: its supervisor lives in this job, and starts this file for each attempt.
  exec "$dsforge_python" -u -m dsforge.launch.job
fi
# What dsforge launch starts has the same Python as itself.
if [ -z "$dsforge_python" ] || { [ -z "${DSFORGE_LEASE:-}" ] && ! "$dsforge_python" -c 'import dsforge.train.main'; }; then
  printf 'dsforge: no Python with dsforge: submit with its environment active, or set DSFORGE_PYTHON\n' >&2
  exit 3
fi

# NCCL writes the cause of an error into the rank's log, it is silent otherwise
export NCCL_DEBUG=WARN
# the cores that launch.slurm.cpus_per_task has for a rank
export OMP_NUM_THREADS=12
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
dsforge_checkpoints=checkpoints/llama3-8b-slurm
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

if [ -z "${DSFORGE_TELL:-}" ]; then
  mapfile -t dsforge_hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  # Ranks meet on the first host, under the address by which Slurm reaches it: a node's name need not resolve.
  dsforge_address=$(scontrol --oneliner show node "${dsforge_hosts[0]}" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
  export MASTER_ADDR="${dsforge_address:-${dsforge_hosts[0]}}"
fi
# They find RANK, WORLD_SIZE and the rest in Slurm's own variables (dsforge.rank.identity). When one ends, the
# others have a minute to end too and to write why.
# A step of an earlier attempt may still hold the nodes, when what held its ranks was killed.
dsforge_words=(
  srun
  --nodes=8
  --ntasks=64
  --ntasks-per-node=8
  --cpus-per-task=12
  --distribution=block
  --cpu-bind=none
  --mpi=none
  --overlap
  --kill-on-bad-exit=0
  --wait=60
  --export=CUDA_HOME,DSFORGE_ATTEMPT_DIR,DSFORGE_CHECKPOINT_DIR,DSFORGE_CORPUS,DSFORGE_DS_CONFIG,DSFORGE_DUMP_PARAMETERS,DSFORGE_LEASE,DSFORGE_PLAN,DSFORGE_PYTHON,DSFORGE_ROOT,DSFORGE_RUN_ID,DSFORGE_SECRETS,HOME,LANG,LD_LIBRARY_PATH,MASTER_ADDR,MASTER_PORT,NCCL_DEBUG,OMP_NUM_THREADS,PATH,PYTHONPATH,TORCH_EXTENSIONS_DIR,TORCH_NCCL_ASYNC_ERROR_HANDLING,USER,XDG_CACHE_HOME
  "$dsforge_python" -m dsforge.rank.main dsforge.train.main
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
if [ -n "${DSFORGE_LEASE:-}" ]; then
  # Under dsforge launch, which tells the ranks what Slurm tells it.
  exec "${dsforge_words[@]}"
fi
# Before the time limit Slurm signals this script; it tells the ranks to save and end.
dsforge_out_of_time=
trap 'dsforge_out_of_time=yes; scancel --signal=TERM "$SLURM_JOB_ID"' USR1
# Cancelled: Slurm tells the ranks itself, and this script waits for them.
trap : TERM
"${dsforge_words[@]}" &
dsforge_srun=$!
# A signal ends `wait` early. The last code counts: bash may have lost it when it is asked for again.
while :; do
  dsforge_code=0
  wait "$dsforge_srun" || dsforge_code=$?
  kill -0 "$dsforge_srun" 2>/dev/null || break
done
if [ -n "$dsforge_out_of_time" ] && [ "$dsforge_code" -ne 0 ]; then
  # The next start goes on from the checkpoint that the ranks have just saved.
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$dsforge_code"
