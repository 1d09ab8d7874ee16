"""Training on a pack."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from objectaware.config import DataConfig, PretrainConfig
from objectaware.data.folder import ImageFolder
from objectaware.data.pack import PackedImages, pack_images
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.methods.checkpoint import load_state
from objectaware.training.inputs import require_detail, windowed_batches
from objectaware.training.pretraining import run_pretraining
from objectaware.training.session import LocalSession, StoppedError
from training_fixtures import make_method, make_trainer, training_state


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Pictures of two classes, and a pack of them in several shards."""
    folder = tmp_path_factory.mktemp("packed")
    random = np.random.default_rng(0)
    for number in range(24):
        path = folder / "photos" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (44, 40 + number, 3), dtype=np.uint8)).save(path)
    images = ImageFolder.from_classes(folder / "photos")
    pack_images(images, Storage.from_uri(folder / "pack"), source={}, shard_bytes=40_000)
    return folder / "photos", folder / "pack"


def test_a_pack_trains_as_the_folder_in_its_order_does_to_the_bit(folders: tuple[Path, Path], tmp_path: Path) -> None:
    packed = PackedImages(str(folders[1]), window=2)
    assert len(packed.shard_sizes) > 2
    states = []
    for name, images in (("pack", packed), ("folder", ImageFolder(folders[0], packed.image_ids))):
        trainer = make_trainer(
            make_method("moco"),
            LocalSession(tmp_path / name),
            images=images,
            batches=lambda epoch: windowed_batches(packed.shard_sizes, 2, 8, seed=0, epoch=epoch),
        )
        trainer.run()
        states.append(training_state(trainer))
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


class Interrupted(LocalSession):
    """Is told to end at a step, counted from 1."""

    def __init__(self, folder: Path, stop_at: int) -> None:
        super().__init__(folder)
        self.steps_left = stop_at

    def should_stop(self) -> bool:
        self.steps_left -= 1
        return self.steps_left == 0


def test_a_recipe_streams_a_pack_and_resumes_inside_an_epoch(folders: tuple[Path, Path], tmp_path: Path) -> None:
    config = _config(folders[1])
    whole = LocalSession(tmp_path / "whole")
    run_pretraining(config, whole)
    with pytest.raises(StoppedError):
        run_pretraining(config, Interrupted(tmp_path / "parts", stop_at=4))
    resumed = LocalSession(tmp_path / "parts")
    run_pretraining(config, resumed)
    assert resumed.history[-1]["loss"] == whole.history[-1]["loss"]
    assert resumed.history[-1]["knn_accuracy"] == whole.history[-1]["knn_accuracy"]
    one, other = (load_state(tmp_path / name / "checkpoint")["method"] for name in ("whole", "parts"))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def _config(pack: Path) -> PretrainConfig:
    return PretrainConfig.model_validate(
        {
            "data": DataConfig(root=str(pack), layout="shards", shuffle_window=2),
            "backbone": "resnet10_narrow",
            "image_size": 32,
            "num_epochs": 2,
            "batch_size": 8,
            "method": {"queue_size": 16},
            "execution": {"num_loader_threads": 1, "cache_mib": 0},
        }
    )


def test_images_shrunk_below_what_the_views_show_are_refused(folders: tuple[Path, Path]) -> None:
    config = _config(folders[1])  # 32 / sqrt(0.08 · 3/4) = 130.6
    require_detail(config, None)
    require_detail(config, 131)
    with pytest.raises(InputError, match=r"130 pixels, less than 131 = image_size 32 / sqrt\(min_crop_scale 0.08"):
        require_detail(config, 130)
    crops = PretrainConfig.model_validate({**config.model_dump(), "policy": {"name": "object_crop", "masks": "masks"}})
    with pytest.raises(InputError, match="shows details of images that are shrunk to 500 pixels"):
        require_detail(crops, 500)
