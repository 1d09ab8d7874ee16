"""Writes scenes in the published layouts of the real sets, so that the loaders of real data read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from pycocotools import mask as coco_mask

from objectaware.data.scenes.plan import SceneVariant, Split, draw_plan
from objectaware.data.scenes.shapes import CLASS_FOLDERS, CLASS_NAMES
from objectaware.data.scenes.variants import VARIANT_NAMES, mask_box, render_scene, render_variants

# No chroma subsampling: at this size it would smear an object's colours into the background.
_JPEG_OPTIONS = [
    cv2.IMWRITE_JPEG_QUALITY, 92, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
]  # fmt: skip


def _write_jpeg(path: Path, image: NDArray[np.uint8]) -> None:
    encoded, content = cv2.imencode(".jpg", image[:, :, ::-1], _JPEG_OPTIONS)
    assert encoded, "OpenCV did not encode a picture of its own making"
    path.write_bytes(content.tobytes())


def write_backgrounds_challenge(
    root: Path, split: Split, num_pictures: int, *, image_size: int, correlation: float, seed: int
) -> None:
    """Writes a split as `<variant>/<split>/<class>/<name>.JPEG` and `fg_mask/<split>/<class>/<name>.npy`.

    Args:
        root: Folder to write into.
        split: The split to write.
        num_pictures: Pictures of every variant, and as many boolean masks.
        image_size: Side of a picture in pixels.
        correlation: Probability that a class goes with its own background family, in [0, 1].
        seed: Seed of the data set.
    """
    for variant in (*VARIANT_NAMES, "fg_mask"):
        for class_folder in CLASS_FOLDERS:
            (root / variant / split / class_folder).mkdir(parents=True, exist_ok=True)
    for index in range(num_pictures):
        plan = draw_plan(seed, split, index, variant="single-object", correlation=correlation)
        pictures, mask = render_variants(plan, seed, split, index, image_size)
        place = Path(split) / CLASS_FOLDERS[plan.classes[0]] / f"{split}_{index:06d}"
        for variant, picture in pictures.items():
            _write_jpeg((root / variant / place).with_suffix(".JPEG"), picture)
        np.save((root / "fg_mask" / place).with_suffix(".npy"), mask)


def _annotation(mask: NDArray[np.bool_], class_index: int, image_id: int, annotation_id: int) -> dict[str, Any]:
    encoded = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    left, top, right, bottom = mask_box(mask)
    return {
        "id": annotation_id,
        "image_id": image_id,
        "category_id": class_index + 1,
        "bbox": [left, top, right - left, bottom - top],
        "area": int(mask.sum()),
        "iscrowd": 0,
        # Run lengths and not polygons: a ring has a hole, which COCO's polygons cannot express.
        "segmentation": {"size": list(mask.shape), "counts": encoded["counts"].decode("ascii")},
    }


def write_coco(
    root: Path,
    split: Split,
    num_pictures: int,
    *,
    variant: SceneVariant,
    image_size: int,
    correlation: float,
    seed: int,
) -> None:
    """Writes a split as `<split>2017/%012d.jpg` and `annotations/instances_<split>2017.json`.

    Args:
        root: Folder to write into.
        split: The split to write.
        num_pictures: Pictures of the split.
        variant: One object a picture, or two to three.
        image_size: Side of a picture in pixels.
        correlation: Probability that a class goes with its own background family and partner, in [0, 1].
        seed: Seed of the data set.
    """
    folder = root / f"{split}2017"
    folder.mkdir(parents=True, exist_ok=True)
    (root / "annotations").mkdir(exist_ok=True)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for index in range(num_pictures):
        plan = draw_plan(seed, split, index, variant=variant, correlation=correlation)
        picture, masks = render_scene(plan, seed, split, index, image_size)
        image_id = index + 1
        name = f"{image_id:012d}.jpg"
        _write_jpeg(folder / name, picture)
        images.append({"id": image_id, "file_name": name, "width": image_size, "height": image_size})
        for class_index, mask in zip(plan.classes, masks, strict=True):
            annotations.append(_annotation(mask, class_index, image_id, len(annotations) + 1))
    categories = [{"id": index + 1, "name": name, "supercategory": "shape"} for index, name in enumerate(CLASS_NAMES)]
    content = {
        "info": {"description": "scenes"},
        "licenses": [],
        "images": images,
        "annotations": annotations,
    }
    text = json.dumps(content | {"categories": categories})
    (root / "annotations" / f"instances_{split}2017.json").write_text(text, encoding="utf-8")
