"""Pictures drawn in Tiny-ImageNet's layout: a white object on black, where its box says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

WNIDS = ("n02124075", "n01443537", "n04067472")
"""As `wnids.txt` lists them: in no order."""


def box_of(number: int) -> tuple[int, int, int, int]:
    """First and last column and row of a picture's object."""
    return 4 + number, 8, 35 + number, 63


def write_picture(path: Path, number: int) -> None:
    pixels = np.zeros((64, 64, 3), dtype=np.uint8)
    x0, y0, x1, y1 = box_of(number)
    pixels[y0 : y1 + 1, x0 : x1 + 1] = 255
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, "JPEG")


def write_tiny_imagenet(folder: Path, *, wnids: Sequence[str] = WNIDS, num_train: int = 2, num_val: int = 1) -> Path:
    """Write the data set into a folder, with as many pictures per class and split, and give its root."""
    base = folder / "tiny-imagenet-200"
    base.mkdir()
    (base / "wnids.txt").write_text("\n".join(wnids) + "\n")
    for wnid in wnids:
        names = [f"{wnid}_{number}.JPEG" for number in range(num_train)]
        for number, name in enumerate(names):
            write_picture(base / "train" / wnid / "images" / name, number)
        lines = ["\t".join(map(str, (name, *box_of(number)))) for number, name in enumerate(names)]
        (base / "train" / wnid / f"{wnid}_boxes.txt").write_text("\n".join(lines) + "\n")
    lines = []
    for number, wnid in enumerate(wnid for wnid in wnids for _ in range(num_val)):
        write_picture(base / "val" / "images" / f"val_{number}.JPEG", number)
        lines.append("\t".join(map(str, (f"val_{number}.JPEG", wnid, *box_of(number)))))
    (base / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    return base
