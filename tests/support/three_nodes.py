"""Localizes on a cluster of three nodes, of which one goes while it works; run as a script.

Usage: three_nodes.py IMAGES CHECKPOINT STORE. Prints a line of JSON: how many shards there were when the node went,
and which actors it held.
"""

from __future__ import annotations

import fcntl
import json
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from actors import actors
from objectaware.config import DataConfig, LocalizeConfig, LocalizeExecution
from objectaware.data.folder import ImageFolder, Manifest
from objectaware.data.storage import Storage
from objectaware.distributed.localize import localize
from objectaware.localize.contracam import ContraCAM
from objectaware.localize.mask_store import finished_shards
from ports import free_port


def config(images: str, checkpoint: str) -> LocalizeConfig:
    """Groups of two images, with two actors for each step."""
    return LocalizeConfig(
        data=DataConfig(root=images),
        checkpoint=checkpoint,
        image_size=32,
        localizer=ContraCAM(num_iterations=1, expansion=4),
        group_size=2,
        seed=1,
        execution=LocalizeExecution(num_compute_threads=1, num_cam_actors=2, num_crf_actors=2, use_gpu=False),
    )


@dataclass(frozen=True)
class Gate:
    """Let the first shards be written, and the others once the lock on a file is released.

    Without it a busy machine may finish all groups before the driver hears of the first one. Ray Data reads some blocks
    ahead before it hands on the first one, so that one shard is not enough.
    """

    store: str
    lock: Path

    def __call__(self) -> None:
        if len(finished_shards(Storage.from_uri(self.store))) >= 8:
            with self.lock.open() as file:
                fcntl.flock(file, fcntl.LOCK_SH)


def main(images: str, checkpoint: str, store: str) -> None:
    """Localizes, and takes a node with actors away once the first groups are done."""
    # Ray's own choice of a port is always the same.
    head = {"num_cpus": 2, "include_dashboard": True, "dashboard_port": free_port()}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    # Six processes; what is left when one node has gone has room for the four actors, and for a reader.
    others = {node.node_id: node for node in (cluster.add_node(num_cpus=3) for _ in range(2))}
    ray.init(address=cluster.address, log_to_driver=False)
    has_begun = threading.Event()
    errors: list[BaseException] = []
    lock_path = Path(f"{store}.lock")
    lock = lock_path.open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    gated = Storage.from_uri(store).guarded(Gate(store, lock_path))

    def work() -> None:
        settings = config(images, checkpoint)
        try:
            manifest = Manifest.of(ImageFolder.scan(settings.data.root))
            localize(settings, manifest=manifest, store=gated, on_record=lambda _: has_begun.set())
        except BaseException as error:
            errors.append(error)
            has_begun.set()

    thread = threading.Thread(target=work)
    thread.start()  # the cluster's nodes have to be started and ended in the main thread
    has_begun.wait()
    living = [actor for actor in actors(("state", "=", "ALIVE"), detail=True) if actor.node_id in others]
    ours = [actor for actor in living if "CamActor" in actor.class_name or "CrfActor" in actor.class_name]
    num_shards = len(finished_shards(Storage.from_uri(store)))
    if ours:
        cluster.remove_node(others[ours[0].node_id], allow_graceful=False)
    lock.close()
    thread.join()
    if errors:
        raise errors[0]
    lost = [actor.class_name for actor in ours if actor.node_id == ours[0].node_id]
    print(json.dumps({"num_shards": num_shards, "lost": lost}))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
