"""Trains on a cluster of three nodes, each with room for one worker, of which one goes; run as a script.

Usage: three_training_nodes.py IMAGES STORAGE. Prints a line of JSON: the records' kinds, the losses by epoch, and
the number of workers now and then.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from actors import actors
from objectaware.config import PretrainConfig
from objectaware.data.storage import Storage
from ports import free_port
from ray_training import pretrain
from tiny_training import tiny_training


def config(images: str, num_workers: int = 1) -> PretrainConfig:
    """Batches of 12, which two and three workers share evenly, in 10 epochs, on as many workers as have room."""
    return tiny_training(
        Path(images),
        num_epochs=10,
        batch_size=12,
        queue_size=60,
        num_workers=num_workers,
        min_workers=2 if num_workers > 1 else None,
        checkpoint_interval_steps=1,
    )


def main(images: str, storage: str) -> None:
    """Trains, and takes the last node away after the first epoch."""
    # Ray Train first tries to start as many workers as there were, for so long; three minutes by default.
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "40"
    # Ray's own choice of a port is always the same.
    head = {"num_cpus": 1, "include_dashboard": True, "dashboard_port": free_port()}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    last = [cluster.add_node(num_cpus=1) for _ in range(2)][-1]
    ray.init(address=cluster.address, log_to_driver=False)
    has_begun = threading.Event()
    kinds: list[str] = []
    num_workers: list[int] = []
    losses: dict[int, float] = {}
    errors: list[BaseException] = []

    def on_record(record: dict[str, Any]) -> None:
        kinds.append(record["kind"])
        if record["kind"] == "progress":
            num_workers.append(len(actors(("class_name", "=", "RayTrainWorker"), ("state", "=", "ALIVE"))))
        if record["kind"] == "epoch":
            assert record["epoch"] not in losses, record
            losses[record["epoch"]] = record["loss"]
            has_begun.set()

    def train() -> None:
        try:
            pretrain(config(images, 3), Storage.from_uri(storage), on_record)
        except BaseException as error:
            errors.append(error)
            has_begun.set()

    thread = threading.Thread(target=train)
    thread.start()  # the cluster's nodes have to be started and ended in the main thread
    has_begun.wait()
    cluster.remove_node(last, allow_graceful=False)
    thread.join()
    if errors:
        raise errors[0]
    print(json.dumps({"kinds": kinds, "losses": losses, "num_workers": num_workers}))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
