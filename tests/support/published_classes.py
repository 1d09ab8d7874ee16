"""Small trees in the layouts of published data sets."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from PIL import Image

BICYCLES = ("bicycle-built-for-two, tandem bicycle, tandem", "mountain bike, all-terrain bike, off-roader")


def write_picture(path: Path, size: tuple[int, int] = (8, 8), colour: str = "gray") -> Path:
    """Writes a picture, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path


def write_classes(folder: Path, classes: Iterable[str], *, num_images: int = 1, suffix: str = ".JPEG") -> None:
    """Writes a folder a class, and beside the pictures what file managers leave."""
    for name in classes:
        for number in range(num_images):
            write_picture(folder / name / f"{name}_{number}{suffix}")
        (folder / name / f"._{name}_0{suffix}").write_bytes(b"resource fork")
    (folder / ".DS_Store").write_bytes(b"")


def write_objectnet(root: Path) -> None:
    """ObjectNet of three folders: one in the superclasses, one of two superclasses, one that ImageNet lacks.

    No list has the order of another.
    """
    for folder in ("bicycle", "air_freshener", "chair"):
        picture = Image.new("RGB", (12, 9), "red")
        picture.paste((0, 0, 255), (2, 2, 10, 7))
        path = root / "images" / folder / f"{folder}.png"
        path.parent.mkdir(parents=True)
        picture.save(path)
    mappings = {
        "folder_to_objectnet_label": {"chair": "Chair", "bicycle": "Bicycle", "air_freshener": "Air freshener"},
        # A chair that is a dog to ImageNet: two superclasses have nothing in common.
        "objectnet_to_imagenet_1k": {"Chair": f"{BICYCLES[0]}; Chihuahua", "Bicycle": "; ".join(BICYCLES[::-1])},
        "pytorch_to_imagenet_2012_id": {"671": 2, "151": 1, "444": 0},
    }
    (root / "mappings").mkdir()
    for name, content in mappings.items():
        (root / "mappings" / f"{name}.json").write_text(json.dumps(content))
    (root / "mappings" / "imagenet_to_label_2012_v2").write_text(f"{BICYCLES[0]}\nChihuahua\n{BICYCLES[1]}")
