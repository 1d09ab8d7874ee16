"""The files that start clusters: what their own programs take, and what must never be open."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray._private import ray_constants
from ray._private.utils import resolve_object_store_memory
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parents[2]
CLOUD_FILES = ("cluster.yaml", "cluster/gcp.yaml")
LAUNCHER_FILES = (*CLOUD_FILES, "cluster/local.yaml")
SCRIPTS = sorted(ROOT.glob("cluster/*.sh"))


def read(name: str) -> dict[str, Any]:
    """Return the last document of a file: that of rayjob.yaml follows its service account."""
    *_, loaded = yaml.safe_load_all((ROOT / name).read_text())
    assert isinstance(loaded, dict)
    return loaded


def pods() -> dict[str, dict[str, Any]]:
    """Return the groups of rayjob.yaml by name."""
    cluster = read("cluster/rayjob.yaml")["spec"]["rayClusterSpec"]
    return {"head": cluster["headGroupSpec"], **{group["groupName"]: group for group in cluster["workerGroupSpecs"]}}


def gibibytes(quantity: str) -> int:
    assert quantity.endswith("Gi"), quantity
    return int(quantity.removesuffix("Gi")) * 2**30


def validate(config: dict[str, Any]) -> None:
    validate_config(prepare_config(copy.deepcopy(config)))


@pytest.mark.parametrize("name", LAUNCHER_FILES)
def test_rays_launcher_takes_it(name: str) -> None:
    validate(read(name))


@pytest.mark.parametrize("name", LAUNCHER_FILES)
def test_rays_launcher_would_see_a_mistake(name: str) -> None:
    with pytest.raises(Exception, match="max_wokers"):
        validate({**read(name), "max_wokers": 3})


def is_spot(node: dict[str, Any]) -> bool:
    market = node.get("InstanceMarketOptions") == {"MarketType": "spot"}
    return market or node.get("scheduling", {}).get("provisioningModel") == "SPOT"


@pytest.mark.parametrize("name", CLOUD_FILES)
def test_the_head_takes_no_work_and_the_workers_come_as_needed(name: str) -> None:
    config = read(name)
    types = config["available_node_types"]
    head = types.pop(config["head_node_type"])
    assert head["resources"]["CPU"] == 0
    assert not is_spot(head["node_config"]), "a head that is taken away ends the cluster"
    for worker in types.values():
        assert worker["min_workers"] == 0
        assert worker["max_workers"] > 0
        assert is_spot(worker["node_config"])
    assert {bool(worker["resources"].get("GPU")) for worker in types.values()} == {True, False}


def test_idle_nodes_outlast_what_a_driver_does_between_two_stages() -> None:
    for name in CLOUD_FILES:
        assert read(name)["idle_timeout_minutes"] >= 15, name
    cluster = read("cluster/rayjob.yaml")["spec"]["rayClusterSpec"]
    assert cluster["autoscalerOptions"]["idleTimeoutSeconds"] >= 900


def test_the_machines_have_a_driver_for_the_cuda_of_torch() -> None:
    """Of NVIDIA's drivers, 580 is the first one for CUDA 13."""
    cuda = re.search(r"^nvidia-cuda-runtime==(\d+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert cuda is not None
    driver = {13: 580}[int(cuda[1])]
    aws = read("cluster.yaml")["available_node_types"].values()
    assert all(node["node_config"]["ImageId"].startswith("ami-") for node in aws), "latest_dlami is of 2023"
    assert (
        "deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest" in (ROOT / "cluster.yaml").read_text()
    )
    for node in read("cluster/gcp.yaml")["available_node_types"].values():
        (disk,) = node["node_config"]["disks"]
        found = re.search(r"-nvidia-(\d+)$", disk["initializeParams"]["sourceImage"])
        assert found is not None
        assert int(found[1]) >= driver


@pytest.mark.parametrize("name", CLOUD_FILES)
def test_machines_can_start_the_container_and_mount_the_storage(name: str) -> None:
    config = read(name)
    commands = config["initialization_commands"]
    places = [
        next(place for place, command in enumerate(commands) if re.search(pattern, command))
        for pattern in (
            "usermod .* docker",
            r"docker login|configure-docker",
            "install --yes nfs-common",
            "mount -t nfs",
        )
    ]
    assert places == sorted(places)
    assert "id --user" in commands[0], "the image's user could not read the token"
    mounted = [option for option in config["docker"]["run_options"] if option.startswith("--volume=")]
    assert mounted == ["--volume=/shared:/shared"]


@pytest.mark.parametrize("name", LAUNCHER_FILES)
def test_the_commands_of_machines_are_bash(name: str) -> None:
    config = read(name)
    kinds = [kind for kind in config if kind.endswith("_commands")]
    assert "worker_start_ray_commands" in kinds
    for command in (command for kind in kinds for command in config[kind]):
        subprocess.run(["bash", "-n"], input=command, text=True, check=True)


@pytest.mark.parametrize(("name", "cloud"), [("cluster.yaml", "aws"), ("cluster/gcp.yaml", "gcp")])
def test_spot_machines_are_watched(name: str, cloud: str) -> None:
    config = read(name)
    *_, start, watch = config["worker_start_ray_commands"]
    assert start.startswith("ray start")
    # The launcher's connection ends with the command: what it started in its own session would end too.
    found = re.fullmatch(r"setsid --fork python /app/(\S+) (\w+) >>\S+ 2>&1 </dev/null", watch)
    assert found is not None
    assert found[2] == cloud
    assert f"COPY {found[1]} /app/{found[1]}\n" in (ROOT / "docker" / "Dockerfile").read_text()
    assert not any("drain" in command for command in config["head_start_ray_commands"])


def test_own_machines_are_started_and_stopped() -> None:
    """What `cluster/try-local.sh` found: without the first, one machine is all there is; without the second, it stays.

    Ray's second autoscaler starts no machine of a local provider, and `ray down` finds `ray` on the path alone.
    """
    config = read("cluster/local.yaml")
    assert "RAY_enable_autoscaler_v2=0" in config["head_start_ray_commands"][-1]
    assert any("export PATH=/shared/objectaware/.venv/bin:" in command for command in config["setup_commands"])


def test_no_port_is_open_to_the_world() -> None:
    config = read("cluster.yaml")
    assert config["provider"]["use_internal_ips"]
    # Where a node names none, Ray makes a group that lets the world in on port 22.
    assert all(node["node_config"]["SecurityGroupIds"] for node in config["available_node_types"].values())
    google = read("cluster/gcp.yaml")
    assert google["provider"]["use_internal_ips"]
    for node in google["available_node_types"].values():
        assert all("accessConfigs" not in interface for interface in node["node_config"]["networkInterfaces"])
    for name in LAUNCHER_FILES:
        assert "--dashboard-host=127.0.0.1" in " ".join(read(name)["head_start_ray_commands"])
    for file in (ROOT / "cluster.yaml", *(ROOT / "cluster").iterdir()):
        assert "0.0.0.0" not in file.read_text(), file


@pytest.mark.parametrize("name", [*LAUNCHER_FILES, "cluster/slurm.sh"])
def test_ray_asks_for_a_token(name: str) -> None:
    assert "RAY_AUTH_MODE=token" in (ROOT / name).read_text()
    if name in LAUNCHER_FILES:
        assert read(name)["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"


def test_all_nodes_write_to_one_storage() -> None:
    for name in (*LAUNCHER_FILES, "cluster/rayjob.yaml"):
        assert re.search(r"OBJECTAWARE_STORAGE\b.*/shared/runs", (ROOT / name).read_text()), name


def test_kubernetes_gets_what_kuberay_knows() -> None:
    # Fields of the RayJob of KubeRay's ray.io/v1.
    job = read("cluster/rayjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]
    assert spec.keys() <= {
        *("entrypoint", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "activeDeadlineSeconds"),
        *("backoffLimit", "rayClusterSpec", "submissionMode", "runtimeEnvYAML", "metadata"),
    }
    assert spec["backoffLimit"] == 0, "KubeRay would start a job again that was refused"
    cluster = spec["rayClusterSpec"]
    known = {"rayVersion", "enableInTreeAutoscaling", "autoscalerOptions", "authOptions", "headGroupSpec"}
    assert cluster.keys() == known | {"workerGroupSpecs"}
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    for group in cluster["workerGroupSpecs"]:
        assert group.keys() == {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
        assert group["minReplicas"] == 0
    for group in pods().values():
        pod = group["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        (container,) = pod["containers"]
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]} == {"shared", "memory"}
        for variable in container["env"]:
            assert "PASSWORD" not in variable["name"] or "secretKeyRef" in variable["valueFrom"]


@pytest.mark.parametrize("name", ["head", "gpu", "cpu"])
def test_the_shared_memory_of_a_pod_holds_rays_object_store(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own arithmetic, for a pod whose memory is unused."""
    group = pods()[name]
    pod = group["template"]["spec"]
    (container,) = pod["containers"]
    (memory,) = [volume["emptyDir"] for volume in pod["volumes"] if volume["name"] == "memory"]
    assert memory["medium"] == "Memory"
    assert {"name": "memory", "mountPath": "/dev/shm"} in container["volumeMounts"]
    shared = gibibytes(memory["sizeLimit"])
    monkeypatch.setattr("ray._private.utils.get_shared_memory_bytes", lambda: shared)
    given = group["rayStartParams"].get("object-store-memory")
    limit = gibibytes(container["resources"]["limits"]["memory"])
    store = resolve_object_store_memory(limit, None if given is None else int(given))
    assert store <= shared, "Ray would put the object store on the disk"
    assert store >= ray_constants.DEFAULT_OBJECT_STORE_MEMORY_PROPORTION * limit - 1, "Ray would make it smaller"


def test_pods_with_gpus_reach_their_nodes_and_others_count_none() -> None:
    for name, group in pods().items():
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        has_gpu = "nvidia.com/gpu" in container["resources"]["limits"]
        assert has_gpu == (name == "gpu")
        tolerated = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod.get(
            "tolerations", []
        )
        assert tolerated == has_gpu
        assert (group["rayStartParams"].get("num-gpus") == "0") != has_gpu


def test_pods_leave_in_time_and_without_rights_to_kubernetes() -> None:
    account, _ = yaml.safe_load_all((ROOT / "cluster" / "rayjob.yaml").read_text())
    assert account["kind"] == "ServiceAccount"
    for name, group in pods().items():
        pod = group["template"]["spec"]
        assert pod["serviceAccountName"] == account["metadata"]["name"]
        if name == "head":  # its autoscaler takes the rights, and it goes only with the whole cluster
            assert "automountServiceAccountToken" not in pod
            continue
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        python, script, how, option, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
        assert (python, how, option) == ("python", "now", "--seconds")
        assert (ROOT / script.removeprefix("/app/")).is_file()
        assert 60 <= int(seconds) < pod["terminationGracePeriodSeconds"]


def test_versions_and_scripts_are_those_of_the_project() -> None:
    spec = read("cluster/rayjob.yaml")["spec"]
    pinned = re.search(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert spec["rayClusterSpec"]["rayVersion"] == pinned[1]
    _, script, recipe, *_ = spec["entrypoint"].split()
    for path in (script, recipe):
        assert (ROOT / path.removeprefix("/app/")).is_file(), path


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_scripts_are_sound(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", str(script)], check=True)
