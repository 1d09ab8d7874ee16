"""The pictures that rates are measured on."""

from __future__ import annotations

from itertools import cycle, islice
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from objectaware.config import DataConfig
from objectaware.data.folder import find_images
from objectaware.data.scenes.pictures import draw_plan, render_scene

_NUM_SCENES = 64
_SCENE_SIZE = 480


def source_files(images: str | None, folder: Path) -> list[Path]:
    """The user's photos, or scenes that are drawn into a folder, as JPEG files.

    Raises:
        InputError: The user's folder holds no image.
    """
    if images is not None:
        return [Path(images, image_id) for image_id in find_images(images).image_ids]
    folder.mkdir(parents=True)
    paths = [folder / f"scene-{index:04d}.jpg" for index in range(_NUM_SCENES)]
    for index, path in enumerate(paths):
        plan = draw_plan(0, "train", index, variant="multi-object", correlation=0.9)
        pixels, *_ = render_scene(plan, 0, "train", index, _SCENE_SIZE)
        cv2.imwrite(str(path), cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))
    return paths


def repeated(files: list[Path], number: int, folder: Path) -> DataConfig:
    """A folder of so many pictures: copies of the files, from the first again where there are fewer."""
    folder.mkdir(parents=True)
    for index, path in enumerate(islice(cycle(files), number)):
        (folder / f"{index:06d}{path.suffix}").write_bytes(path.read_bytes())
    return DataConfig(root=str(folder))


def soft_masks(number: int, size: int) -> NDArray[np.float32]:
    """What a CAM looks like: maps (number, size, size) in [0, 1], enlarged from 7 × 7."""
    coarse = np.random.default_rng(0).random((number, 7, 7), dtype=np.float32)
    maps = [cv2.resize(one, (size, size), interpolation=cv2.INTER_CUBIC) for one in coarse]
    return np.clip(np.stack(maps), 0, 1)
