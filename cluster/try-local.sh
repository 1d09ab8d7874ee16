#!/usr/bin/env bash
# Tries cluster/local.yaml on this one machine, as root: hosts are network namespaces with an sshd, processes, a home
# and a /dev/shm of their own. `ray up`, a pretraining by `ray job submit` and a localization by `objectaware submit`
# on all of them, `ray down`. Needs Debian's iproute2, openssh-server and rsync, and the clone's environment
# (`make install`; VENV names another). Takes some minutes and 2 GB of memory a host; leaves nothing behind.
#
#   cluster/try-local.sh [NUMBER OF HOSTS]
set -euo pipefail

num_hosts=${1:-2}
clone=$(cd "$(dirname "$0")/.." && pwd)
venv=$(cd "${VENV:-$clone/.venv}" && pwd)
base=$("$venv/bin/python" -c 'import sys; print(sys.base_prefix)')
sshd=/usr/sbin/sshd
net=oa$$
subnet=10.77.0
work=$(mktemp -d /var/tmp/objectaware-hosts.XXXXXX)

for program in ip unshare rsync ssh ssh-keygen "$sshd"; do
  command -v "$program" >/dev/null || { echo "$program is missing: apt-get install iproute2 openssh-server rsync" >&2; exit 2; }
done
[ "$(id -u)" -eq 0 ] || { echo "network namespaces take root" >&2; exit 2; }

clean_up() {
  status=$?
  trap - EXIT
  set +e
  for number in $(seq 0 "$num_hosts"); do
    # Whatever runs there was started here.
    ip netns pids "$net-$number" 2>/dev/null | xargs --no-run-if-empty kill -KILL 2>/dev/null
    ip netns delete "$net-$number" 2>/dev/null
  done
  wait
  rm -rf "$work"
  rmdir /shared 2>/dev/null
  exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

say() { printf '\n== %s\n' "$*"; }

# Where the user sits: the first namespace, in which the others are plugged together. /tmp/ray is its own, and has
# that name: the launcher copies what it notes there to the same place on the head.
user() {
  # shellcheck disable=SC2016
  ip netns exec "$net-0" env HOME="$work/user" PATH="$venv/bin:$PATH" PYTHONPATH="$clone/platform" \
    RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 \
    bash -c 'mount --bind "$HOME/ray" /tmp/ray && exec "$@"' user "$@"
}

say "$num_hosts hosts"
mkdir -p "$work/user/.ssh" "$work/user/ray" "$work/shared" /shared /tmp/ray /run/sshd
ssh-keygen -q -t ed25519 -N '' -f "$work/user/.ssh/id_ed25519"
ip netns add "$net-0"
ip -n "$net-0" link set lo up
ip -n "$net-0" link add br0 type bridge
ip -n "$net-0" address add "$subnet.1/24" dev br0
ip -n "$net-0" link set br0 up

cat >"$work/host.sh" <<'HOST'
# The first process of a host: mounts what is its own, then serves SSH.
set -euo pipefail
folder=$1 shared=$2 clone=$3 venv=$4 base=$5
hostname "$(basename "$folder")"
mount -t tmpfs tmpfs /tmp/ray
mount -t tmpfs tmpfs /dev/shm
mount --bind "$shared" /shared
mkdir -p /shared/objectaware
mount --bind "$clone" /shared/objectaware
[ "$venv" -ef "$clone/.venv" ] || { mkdir -p /shared/objectaware/.venv && mount --bind "$venv" /shared/objectaware/.venv; }
mkdir "$folder/home"
touch "$folder/home/.bashrc"
# What lies in the real home stays where it is known to be.
for kept in "$clone" "$venv" "$base"; do
  case $kept in "$HOME"/*)
    mkdir -p "$folder/home${kept#"$HOME"}"
    mount --bind "$kept" "$folder/home${kept#"$HOME"}" ;;
  esac
done
mount --rbind "$folder/home" "$HOME"
/usr/sbin/sshd -D -e -f "$folder/sshd_config" 2>"$folder/sshd.log" &
wait $!
HOST

for number in $(seq "$num_hosts"); do
  folder=$work/host$number address=$subnet.1$number
  mkdir "$folder"
  ip netns add "$net-$number"
  ip -n "$net-0" link add "host$number" type veth peer name eth0 netns "$net-$number"
  ip -n "$net-0" link set "host$number" master br0 up
  ip -n "$net-$number" link set lo up
  ip -n "$net-$number" link set eth0 up
  ip -n "$net-$number" address add "$address/24" dev eth0
  ip -n "$net-$number" route add default via "$subnet.1"
  ssh-keygen -q -t ed25519 -N '' -f "$folder/key"
  cat >"$folder/sshd_config" <<SSHD
ListenAddress $address
HostKey $folder/key
PidFile none
PermitRootLogin prohibit-password
AuthorizedKeysFile $work/user/.ssh/id_ed25519.pub
StrictModes no
UsePAM no
SSHD
  ip netns exec "$net-$number" unshare --pid --fork --kill-child --mount-proc --mount --uts --ipc \
    bash "$work/host.sh" "$folder" "$work/shared" "$clone" "$venv" "$base" &
done

say "an MLflow server"
user mlflow server --host "$subnet.1" --port 5000 --workers 1 --backend-store-uri "sqlite:///$work/mlflow.db" \
  --artifacts-destination "$work/artifacts" >"$work/mlflow.log" 2>&1 &
user ray get-auth-token --generate >/dev/null

say "ray up"
user python - "$clone/cluster/local.yaml" "$work/local.yaml" "$work/user/.ssh/id_ed25519" "$subnet" "$num_hosts" <<'PYTHON'
import sys
import yaml
source, target, key, subnet, num_hosts = sys.argv[1:]
config = yaml.safe_load(open(source))
head, *workers = [f"{subnet}.1{number}" for number in range(1, int(num_hosts) + 1)]
config["provider"] |= {"head_ip": head, "worker_ips": workers}
config["auth"] = {"ssh_user": "root", "ssh_private_key": key}
yaml.safe_dump(config, open(target, "w"))
PYTHON
user ray up --yes --no-config-cache "$work/local.yaml"
user ray dashboard "$work/local.yaml" >"$work/dashboard.log" 2>&1 &
# The autoscaler starts Ray on the other hosts after `ray up` has come back.
user timeout 300 python - "$num_hosts" <<'PYTHON'
import sys, time
from ray.util.state import list_nodes
while True:
    try:
        nodes = [node for node in list_nodes("http://127.0.0.1:8265") if node.state == "ALIVE"]
    except Exception:  # the tunnel is not there yet
        nodes = []
    if len(nodes) == int(sys.argv[1]):
        break
    time.sleep(1)
print("nodes:", *sorted(node.node_ip for node in nodes))
PYTHON

say "a pretraining, by Ray's own command"
tracking=http://$subnet.1:5000
user objectaware data build scenes --out "$work/shared/scenes" --num-train 192 --num-val 45 --image-size 48
cd "$clone"
user ray job submit --address http://127.0.0.1:8265 --submission-id pretrain --working-dir . \
  --runtime-env-json "{\"env_vars\": {\"MLFLOW_TRACKING_URI\": \"$tracking\"}}" -- \
  python jobs/pretrain.py jobs/recipes/moco_resnet18_folder.yaml --data.root /shared/scenes/original/train \
  --backbone resnet10_narrow --image_size 48 --method.queue_size 128 --batch_size 32 --num_epochs 2 \
  --execution.num_workers "$num_hosts" --execution.num_compute_threads "$(nproc)"

say "a localization, by objectaware submit"
# More than one host has CPUs for, so that both work.
cat >"$work/shared/localize.yaml" <<RECIPE
execution: {num_cam_actors: 1, num_crf_actors: 1, num_compute_threads: 1}
RECIPE
checkpoint=/shared/$(cd "$work/shared" && echo runs/pretrain/*/train/epoch_0001)
user env MLFLOW_TRACKING_URI="$tracking" objectaware submit --address http://127.0.0.1:8265 \
  --submission-id localize -- localize /shared/scenes/original/train --checkpoint "$checkpoint" --preset scenes --recipe /shared/localize.yaml

say "what ran where"
user python - <<'PYTHON'
from collections import defaultdict
from ray.util.state import list_actors, list_nodes
address = "http://127.0.0.1:8265"
hosts = {node.node_id: node.node_ip for node in list_nodes(address)}
places = defaultdict(set)
for actor in list_actors(address, limit=1000):
    places[actor.class_name].add(hosts.get(actor.node_id))
for name, found in sorted(places.items()):
    print(f"{name}: {', '.join(sorted(map(str, found)))}")
PYTHON
MLFLOW_TRACKING_URI=$tracking user python - <<'PYTHON'
from mlflow import search_runs
for _, run in search_runs(experiment_names=["objectaware"]).iterrows():
    print(f"MLflow: {run['tags.mlflow.runName']}, {run['status']}, job {run['tags.ray.submission_id']}")
PYTHON

say "ray down"
user ray down --yes "$work/local.yaml"
if ip netns pids "$net-1" | xargs --no-run-if-empty ps -o comm= -p | grep -q gcs_server; then
  echo "Ray runs on the head still" >&2
  exit 1
fi
