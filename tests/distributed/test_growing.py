"""A cluster whose head takes no tasks, and whose nodes an autoscaler starts when they are asked for, and takes away."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient

from objectaware.config import PretrainConfig
from objectaware.data.scenes import build_scenes
from objectaware.data.storage import Storage
from objectaware.localize.mask_store import finished_shards
from objectaware.training.pretraining import run_pretraining
from objectaware.training.session import LocalSession
from ports import free_port
from ray_head import RayHead, ray_head
from tiny_sweep import NETWORK, scenes_data, sweep_fields

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

# Ray's provider for tests starts each node as processes of this machine, and names it by its id.
HEAD_ID = "f" * 51 + "00000"
# In a process of its own, since this one may be connected to another Ray.
UNTIL_ALONE = """\
import time, ray
ray.init(log_to_driver=False)
while sum(node["Alive"] for node in ray.nodes()) > 1:
    time.sleep(0.2)
print(len(ray.nodes()) - 1)
"""


def _autoscaling(address: str) -> dict[str, object]:
    """Up to two nodes of four CPUs, which go after six seconds without work."""
    provider = {
        "type": "fake_multinode",
        "gcs_address": address,
        "head_node_id": HEAD_ID,
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    }
    kinds = {
        "head": {"resources": {}, "node_config": {}, "max_workers": 0},
        "worker": {
            "resources": {"CPU": 4, "object_store_memory": 200_000_000},
            "node_config": {},
            "min_workers": 0,
            "max_workers": 2,
        },
    }
    lists = ("cluster_synced_files", "rsync_exclude", "rsync_filter", "initialization_commands", "setup_commands")
    commands = ("head_setup_commands", "worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands")
    return {
        "cluster_name": "growing",
        "provider": provider,
        "head_node_type": "head",
        "available_node_types": kinds,
        "max_workers": 2,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 0.1,
        "docker": {},
        "auth": {},
        "file_mounts": {},
        "file_mounts_sync_continuously": False,
        **{name: [] for name in (*lists, *commands)},
    }


@pytest.fixture(scope="module")
def folder(clean_environment: Path) -> Path:
    """A folder with a short path, as Ray's sockets need, with pictures and recipes in it."""
    folder = clean_environment / "growing"
    scenes = folder / "scenes"
    build_scenes(scenes, variant="single-object", num_train=144, num_val=45, image_size=48, seed=0)
    (folder / "training.yaml").write_text(yaml.safe_dump({"data": scenes_data(scenes, "train"), **NETWORK}))
    fields = sweep_fields(scenes, parameters={"holdout": {"paths": ["linear.holdout_size"], "grid": [20, 30]}})
    fields["stages"]["network"]["fields"]["seed"] = 1
    (folder / "sweep.yaml").write_text(yaml.safe_dump(fields, sort_keys=False))
    return folder


@pytest.fixture(scope="module")
def head(folder: Path) -> Iterator[RayHead]:
    port = free_port()
    configuration = folder / "autoscaling.json"
    configuration.write_text(json.dumps(_autoscaling(f"127.0.0.1:{port}")))
    variables = {
        "RAY_FAKE_CLUSTER": "1",
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
        "AUTOSCALER_UPDATE_INTERVAL_S": "5",
    }
    arguments = [f"--port={port}", f"--autoscaling-config={configuration}"]
    with ray_head(folder / "ray", variables, num_cpus=0, arguments=arguments) as started:
        yield RayHead(started.address, {**started.environment, "RAY_ADDRESS": f"127.0.0.1:{port}"})


def test_stages_wait_for_nodes_that_come_and_go(head: RayHead, folder: Path) -> None:
    def gone() -> int:
        """Waits until no node is left but the head. Returns how many there have been."""
        command = [sys.executable, "-c", UNTIL_ALONE]
        waited = subprocess.run(command, env=head.environment, check=True, timeout=300, stdout=subprocess.PIPE)
        return int(waited.stdout)

    def objectaware(*arguments: str) -> None:
        command = [sys.executable, "-m", "objectaware.cli", *arguments, "--storage", "runs", "--json", "result.json"]
        done = subprocess.run(command, cwd=folder, env=head.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    assert gone() == 0
    objectaware("pretrain", "training.yaml")
    assert (num_nodes := gone()) >= 1
    trained = json.loads((folder / "result.json").read_text())
    alone = LocalSession(folder / "alone")
    run_pretraining(PretrainConfig.model_validate(yaml.safe_load((folder / "training.yaml").read_text())), alone)
    assert trained["loss"] == alone.history[-1]["loss"]

    recipe = {"image_size": 32, "group_size": 16, "localizer": {"num_iterations": 1}}
    (folder / "localization.yaml").write_text(yaml.safe_dump(recipe))
    pictures = str(folder / "scenes" / "original" / "val")
    given = ["--checkpoint", trained["checkpoint"], "--recipe", "localization.yaml"]
    objectaware("localize", pictures, *given, "--out", "masks")
    assert json.loads((folder / "result.json").read_text())["num_ok"] == 45
    assert len(finished_shards(Storage.from_uri(folder / "masks"))) == 3

    assert gone() > num_nodes
    # Each trial is an evaluation of a training that they share: two stages, of which the second has stages of its own.
    objectaware("sweep", "sweep.yaml")
    accuracies = [trial["accuracy"] for trial in json.loads((folder / "result.json").read_text())["trials"]]
    assert len(accuracies) == 2
    assert all(0 <= accuracy <= 100 for accuracy in accuracies)
    client = MlflowClient(f"sqlite:///{folder / 'runs' / 'mlflow.db'}")
    (experiment,) = (each for each in client.search_experiments() if each.name == "objectaware")
    assert {run.info.status for run in client.search_runs([experiment.experiment_id])} == {"FINISHED"}
