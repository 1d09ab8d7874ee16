#!/usr/bin/env bash
# A job on Slurm with a Ray of its own: sbatch cluster/slurm.sh pretrain jobs/recipes/moco_resnet18_in9.yaml
# Runs jobs/NAME.py with the arguments that follow, on all nodes of the allocation. Started from a clone with its
# environment (`make install`) in a folder that all nodes share. A job that is preempted saves, and goes on when
# Slurm starts it again.
#SBATCH --job-name=objectaware
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --mem=0
#SBATCH --time=48:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
set -euo pipefail

if [ $# -eq 0 ]; then
  echo "usage: sbatch cluster/slurm.sh pretrain|localize|evaluate|sweep|reproduce|demo ARGUMENTS…" >&2
  exit 2
fi
: "${OBJECTAWARE_STORAGE:?set it to a folder that all nodes share}"
: "${MLFLOW_TRACKING_URI:?set it to the address of an MLflow server}"

cd "${SLURM_SUBMIT_DIR:?start this with sbatch}"
export PATH="$PWD/.venv/bin:$PATH"
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 RAY_TMPDIR="/tmp/ray-$SLURM_JOB_ID"
# Of this allocation alone; srun hands the environment on, and no command line shows it.
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
# Apart from other jobs on the same node.
port=$((20000 + SLURM_JOB_ID % 10000))
address="$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}')"

srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" \
  ray start --head --block --node-ip-address="$address" --port="$port" --dashboard-host=127.0.0.1 \
  --num-cpus="$SLURM_CPUS_PER_TASK" &
export RAY_ADDRESS="$address:$port"
until ray health-check --address "$RAY_ADDRESS" >/dev/null 2>&1; do
  kill -0 $! # the head has not given up
  sleep 1
done
for node in "${nodes[@]:1}"; do
  srun --overlap --nodes=1 --ntasks=1 --nodelist="$node" \
    ray start --block --address="$RAY_ADDRESS" --num-cpus="$SLURM_CPUS_PER_TASK" &
done

# Slurm's SIGTERM reaches this script alone; the job saves on it.
job=''
told=''
trap 'told=yes; [ -z "$job" ] || kill -TERM "$job" 2>/dev/null || true' TERM
python "jobs/$1.py" "${@:2}" &
job=$!
[ -z "$told" ] || kill -TERM "$job" # it came between the two
while true; do
  told=''
  status=0
  wait "$job" || status=$?
  # Interrupted by the signal, it has not told the job's status, whether the job has ended since or not.
  [ -n "$told" ] || break
done
# Ends the nodes' Ray with their steps.
mapfile -t steps < <(jobs -p)
kill "${steps[@]}" 2>/dev/null || true
exit "$status"
