#!/usr/bin/env bash
# A job on Slurm with a Ray of its own: sbatch cluster/slurm.sh pretrain jobs/recipes/moco_resnet18_in9.yaml
# Runs jobs/NAME.py with the arguments that follow, on all nodes of the allocation. Started from a clone with its
# environment (`make install`) in a folder that all nodes share.
#
# Before the time limit, and when the job is preempted, it saves, and goes on when Slurm starts it again. `scancel
# --batch --signal=TERM JOB` lets it save and end for good.
#SBATCH --job-name=objectaware
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --mem=0
#SBATCH --time=48:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@180
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

# SIGUSR1 before the time limit, from a step that is preempted, or by `scancel --batch --signal=USR1`: save, and go on
# later. SIGTERM: save and end. Either may come at any moment from here on.
job=''
told=''
again=''
# Each node of a step that is preempted sends a SIGUSR1; the first says it all.
trap 'trap "" USR1; told=yes; again=yes; [ -z "$job" ] || kill -TERM "$job" 2>/dev/null || true' USR1
trap 'told=yes; [ -z "$job" ] || kill -TERM "$job" 2>/dev/null || true' TERM

# Waits for a child, and sets `status`. A signal interrupts `wait`. It is asked again, as it then has not told the child's
# status. Where the signal came just as the child ended, bash takes the child for running, and would wait for ever. The
# status is then the signal's.
await() {
  while true; do
    told=''
    status=0
    wait "$1" || status=$?
    [ -n "$told" ] || break
    if ! kill -0 "$1" 2>/dev/null && jobs -rp | grep -qx "$1"; then break; fi
  done
}

# Ends the nodes' Ray with their steps, also where this script ends early. cluster/slurm-node.sh says why by SIGUSR2.
end_ray() {
  local steps step status
  mapfile -t steps < <(jobs -p)
  [ ${#steps[@]} -eq 0 ] || kill -USR2 "${steps[@]}" 2>/dev/null || true
  for step in "${steps[@]}"; do await "$step"; done
}
trap end_ray EXIT

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
# The batch script runs on the first node. Its address is the one from which it reaches the last: its own name stands
# for 127.0.1.1 on some systems, and it may have several addresses.
address=$(python -c '
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    probe.connect((sys.argv[1], 9))  # sends nothing
    print(probe.getsockname()[0])
' "${nodes[-1]}")
# Apart from those of other jobs on the same node, and below the ports that systems give out by themselves.
port=$((20000 + SLURM_JOB_ID % 2500 * 4))
export RAY_ADDRESS="$address:$port"

# Slurm 22.05 to 23.02 would bind a step without --cpus-per-task to one core. `exec`: signals are for srun.
step() {
  local node=$1
  shift
  exec srun --overlap --nodes=1 --ntasks=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --nodelist="$node" \
    bash cluster/slurm-node.sh start --block --num-cpus="$SLURM_CPUS_PER_TASK" \
    --dashboard-agent-listen-port=$((port + 1)) --min-worker-port=0 --max-worker-port=0 "$@"
}
step "${nodes[0]}" --head --node-ip-address="$address" --port="$port" --dashboard-host=127.0.0.1 \
  --dashboard-port=$((port + 2)) --ray-client-server-port=$((port + 3)) &
until ray health-check --address "$RAY_ADDRESS" >/dev/null 2>&1; do
  kill -0 $! # the head has not given up
  sleep 1
done
for node in "${nodes[@]:1}"; do
  step "$node" --address="$RAY_ADDRESS" &
done
# A job that starts earlier would see only the nodes of that moment.
python -c '
import sys, time, ray
ray.init(log_to_driver=False)
wanted, end = int(sys.argv[1]), time.monotonic() + 300
while (alive := sum(node["Alive"] for node in ray.nodes())) < wanted:
    if time.monotonic() > end:
        sys.exit(f"only {alive} of {wanted} nodes have joined Ray within 300 s")
    time.sleep(1)
' "${#nodes[@]}"

status=143
if [ -z "$told" ]; then
  python "jobs/$1.py" "${@:2}" &
  job=$!
  [ -z "$told" ] || kill -TERM "$job" # it came between the two
  await "$job"
fi

end_ray
# A job that has ended in time has nothing left to do. One that somebody cancels is not RUNNING any more.
if [ -n "$again" ] && [ "$status" -ne 0 ] && scontrol show job "$SLURM_JOB_ID" | grep -q JobState=RUNNING; then
  echo "saved; Slurm starts the job again" >&2
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
