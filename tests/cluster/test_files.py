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
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parents[2]
LAUNCHER_FILES = ("cluster.yaml", "cluster/local.yaml")
SCRIPTS = sorted(ROOT.glob("cluster/*.sh"))


def read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())
    return loaded


def validate(config: dict[str, Any]) -> None:
    validate_config(prepare_config(copy.deepcopy(config)))


@pytest.mark.parametrize("name", LAUNCHER_FILES)
def test_rays_launcher_takes_it(name: str) -> None:
    validate(read(name))


@pytest.mark.parametrize("name", LAUNCHER_FILES)
def test_rays_launcher_would_see_a_mistake(name: str) -> None:
    with pytest.raises(Exception, match="max_wokers"):
        validate({**read(name), "max_wokers": 3})


def test_the_head_takes_no_work_and_the_workers_come_as_needed() -> None:
    config = read("cluster.yaml")
    types = config["available_node_types"]
    head = types.pop(config["head_node_type"])
    assert head["resources"]["CPU"] == 0
    assert "InstanceMarketOptions" not in head["node_config"], "a head that is taken away ends the cluster"
    for worker in types.values():
        assert worker["min_workers"] == 0
        assert worker["max_workers"] > 0
        assert worker["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert {bool(worker["resources"].get("GPU")) for worker in types.values()} == {True, False}


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
        *("backoffLimit", "rayClusterSpec", "submissionMode", "runtimeEnvYAML"),
    }
    cluster = spec["rayClusterSpec"]
    known = {"rayVersion", "enableInTreeAutoscaling", "authOptions", "headGroupSpec", "workerGroupSpecs"}
    assert cluster.keys() == known
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    for group in cluster["workerGroupSpecs"]:
        assert group.keys() == {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
        assert group["minReplicas"] == 0
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        (container,) = pod["containers"]
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]} == {"shared", "memory"}
        for variable in container["env"]:
            assert "PASSWORD" not in variable["name"] or "secretKeyRef" in variable["valueFrom"]


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
