"""An object store in the place of all folders: the pack, checkpoints and what is kept."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

from objectaware.config import DataConfig
from objectaware.data.pack import PackedImages, pack_images
from objectaware.data.storage import Storage
from objectaware.methods.checkpoint import BACKBONE_NAME
from ray_training import pretrain
from s3_server import object_store
from tiny_training import tiny_training

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
NUM_EPOCHS = 20


@pytest.fixture
def bucket() -> Iterator[str]:
    """Ray's workers have the environment that their Ray was started with, so that the URI has to say all."""
    with object_store() as form:
        yield form


def test_a_pack_in_a_bucket_trains_and_resumes(ray_session: None, tiny_images: Path, bucket: str) -> None:
    images = DataConfig(root=str(tiny_images)).open()
    summary = pack_images(images, Storage.from_uri(bucket.format("pack")), source={}, shard_bytes=60_000)
    packed = PackedImages(bucket.format("pack"))
    assert summary.num_shards == len(packed.shard_sizes) > 1
    assert len(packed) == len(images)

    config = tiny_training(
        DataConfig(root=bucket.format("pack"), layout="shards", shuffle_window=2),
        num_epochs=NUM_EPOCHS,
        batch_size=4,
        queue_size=16,
        cache_mib=0,
        keep_every=NUM_EPOCHS,
    )
    kinds: list[str] = []
    epochs: set[int] = set()

    def interrupt_once(record: dict[str, Any]) -> None:
        kinds.append(record["kind"])
        if record["kind"] == "epoch":
            epochs.add(record["epoch"])
        if record["kind"] == "progress" and kinds.count("progress") == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        pretrain(config, Storage.from_uri(bucket.format("runs")), interrupt_once)
    assert kinds[-1] == "stopped"
    assert len(epochs) < NUM_EPOCHS
    stopped = Storage.from_uri(bucket.format("runs/train"))
    assert any(name.endswith("state.pt") for name, _, _ in stopped.list_files())

    address = pretrain(config, Storage.from_uri(bucket.format("runs")), interrupt_once)
    assert epochs == set(range(NUM_EPOCHS))
    kept = stopped.child(f"kept/epoch_{NUM_EPOCHS - 1:04}").read_bytes(BACKBONE_NAME)
    assert Storage.from_uri(address).read_bytes(BACKBONE_NAME) == kept
    assert len(safetensors.torch.load(kept)) > 10
