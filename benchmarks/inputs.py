"""What the benchmarks work on: photos, small pictures and an untrained checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from objectaware.data.images import read_image, resize_image
from objectaware.data.scenes.pictures import draw_plan, render_scene
from objectaware.methods.checkpoint import save_checkpoint
from objectaware.methods.moco import MoCo

_PHOTOS = Path(__file__).parents[2] / "shared" / "data" / "coco-mini"


def photo_source() -> str:
    """Where `photos` come from: `coco-mini` where it is at hand, else `scenes`."""
    return "coco-mini" if _PHOTOS.is_dir() else "scenes"


def photos(number: int, size: int) -> list[NDArray[np.uint8]]:
    """Photos of COCO squashed to (size, size, 3), from the first again where there are fewer; else embedded scenes."""
    files = sorted(_PHOTOS.glob("*2017/*.jpg"))
    if not files:
        return [_scene(index, size) for index in range(number)]
    return [resize_image(read_image(files[index % len(files)]), (size, size)) for index in range(number)]


def photos_as_they_are(number: int) -> list[NDArray[np.uint8]]:
    """Photos of COCO at their own sizes, (H, W, 3), from the first again where there are fewer; else scenes of 480."""
    files = sorted(_PHOTOS.glob("*2017/*.jpg"))
    if not files:
        return [_scene(index, 480) for index in range(number)]
    return [read_image(files[index % len(files)]) for index in range(number)]


def photo_folder(folder: Path, number: int) -> Path:
    """A folder that holds `number` JPEG photos: copies of COCO's, else scenes of 480."""
    files = sorted(_PHOTOS.glob("*2017/*.jpg"))
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(number):
        path = folder / f"photo-{index:06d}.jpg"
        if files:
            path.write_bytes(files[index % len(files)].read_bytes())
        else:
            cv2.imwrite(str(path), cv2.cvtColor(_scene(index, 480), cv2.COLOR_RGB2BGR))
    return folder


class ArrayImages:
    """A data set of images in memory.

    Args:
        pictures: Pixels, (H, W, 3) each.
    """

    def __init__(self, pictures: Sequence[NDArray[np.uint8]]) -> None:
        self._pictures = pictures

    def __len__(self) -> int:
        return len(self._pictures)

    def read(self, index: int) -> NDArray[np.uint8]:
        """Pixels (H, W, 3) of one image."""
        return self._pictures[index]


def _scene(index: int, size: int) -> NDArray[np.uint8]:
    plan = draw_plan(0, "train", index, variant="multi-object", correlation=0.9)
    return render_scene(plan, size)[0]


def blob_masks(number: int, size: int) -> NDArray[np.float32]:
    """Maps (number, size, size) of one to three soft blobs in [0, 1], enlarged from 14 × 14, as good CAMs are."""
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[:14, :14] / 13
    maps = np.empty((number, size, size), dtype=np.float32)
    for index in range(number):
        coarse = 0.05 * random.random((14, 14))
        for _ in range(random.integers(1, 4)):
            (y, x), spread = random.uniform(0.2, 0.8, 2), random.uniform(0.08, 0.25)
            coarse += random.uniform(0.4, 1) * np.exp(-((rows - y) ** 2 + (columns - x) ** 2) / (2 * spread**2))
        enlarged = cv2.resize(coarse.astype(np.float32), (size, size), interpolation=cv2.INTER_CUBIC)
        maps[index] = (enlarged - enlarged.min()) / np.ptp(enlarged)
    return maps


def write_pictures(folder: Path, number: int, size: int) -> None:
    """Small JPEG pictures, each a disc on noise; those that are there already stay."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(number):
        path = folder / f"picture-{index:06d}.jpg"
        if not path.exists():
            random = np.random.default_rng(index)
            picture = random.integers(0, 90, (size, size, 3), dtype=np.uint8)
            center = random.integers(size // 4, 3 * size // 4, 2).tolist()
            cv2.circle(picture, center, size // 5, random.integers(120, 255, 3).tolist(), thickness=-1)
            cv2.imwrite(str(path), picture)


def write_tiny_checkpoint(folder: Path, backbone: str = "resnet10_narrow") -> None:
    """A checkpoint of an untrained network, by default the demo's."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    method = MoCo(backbone, queue_size=8)
    save_checkpoint(folder, method, {"backbone": backbone}, {"optimizer": {}, "next_epoch": 0})
