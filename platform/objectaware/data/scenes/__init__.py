"""The embedded data set `scenes`: pictures made by code, in the published layouts of real sets.

Written to disk as real data sets are, so that their layouts read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import cv2
import numpy as np
from numpy.typing import NDArray
from pycocotools import mask as coco_mask

from objectaware.data.scenes import outlines, pictures
from objectaware.data.sets.backgrounds_challenge import VARIANTS
from objectaware.errors import InputError

# No chroma subsampling: at this size it would smear an object's colours into the background.
_JPEG_OPTIONS = [
    cv2.IMWRITE_JPEG_QUALITY, 92, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
]  # fmt: skip


def write_jpeg(path: Path, image: NDArray[np.uint8]) -> None:
    """Write a picture (H, W, 3) as JPEG whose edges stay sharp."""
    encoded, content = cv2.imencode(".jpg", image[:, :, ::-1], _JPEG_OPTIONS)
    assert encoded, "OpenCV did not encode a picture of its own making"
    path.write_bytes(content.tobytes())


def write_backgrounds_challenge(root: Path, split: str, plans: Sequence[pictures.ScenePlan], image_size: int) -> None:
    """Write a split as `<variant>/<split>/<class>/<name>.JPEG` and `fg_mask/<split>/<class>/<name>.npy`.

    Args:
        root: Folder to write into.
        split: The split to write.
        plans: The pictures of every variant, in order.
        image_size: Side of a picture in pixels.
    """
    for variant in (*VARIANTS, "fg_mask"):
        for class_folder in outlines.CLASS_FOLDERS:
            (root / variant / split / class_folder).mkdir(parents=True, exist_ok=True)
    for plan in plans:
        shown, mask = pictures.render_variants(plan, image_size)
        place = Path(split) / outlines.CLASS_FOLDERS[plan.classes[0]] / f"{split}_{plan.index:06d}"
        for variant, picture in shown.items():
            write_jpeg((root / variant / place).with_suffix(".JPEG"), picture)
        np.save((root / "fg_mask" / place).with_suffix(".npy"), mask)


def _annotation(mask: NDArray[np.bool_], class_index: int, image_id: int, annotation_id: int) -> dict[str, Any]:
    encoded = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    left, top, right, bottom = pictures.mask_box(mask)
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


def write_coco(root: Path, split: str, plans: Sequence[pictures.ScenePlan], image_size: int) -> None:
    """Write a split as `<split>2017/%012d.jpg` and `annotations/instances_<split>2017.json`.

    Args:
        root: Folder to write into.
        split: The split to write.
        plans: The pictures, in order.
        image_size: Side of a picture in pixels.
    """
    folder = root / f"{split}2017"
    folder.mkdir(parents=True, exist_ok=True)
    (root / "annotations").mkdir(exist_ok=True)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for plan in plans:
        picture, masks = pictures.render_scene(plan, image_size)
        image_id = plan.index + 1
        name = f"{image_id:012d}.jpg"
        write_jpeg(folder / name, picture)
        images.append({"id": image_id, "file_name": name, "width": image_size, "height": image_size})
        for class_index, mask in zip(plan.classes, masks, strict=True):
            annotations.append(_annotation(mask, class_index, image_id, len(annotations) + 1))
    names = enumerate(outlines.CLASS_NAMES, start=1)
    categories = [{"id": number, "name": name, "supercategory": "shape"} for number, name in names]
    content = {"info": {"description": "scenes"}, "licenses": [], "images": images, "annotations": annotations}
    text = json.dumps(content | {"categories": categories})
    (root / "annotations" / f"instances_{split}2017.json").write_text(text, encoding="utf-8")


Layout = Literal["backgrounds-challenge", "coco"]
MARKER_NAME = "scenes.json"
# Raised whenever the same parameters give other pictures.
_FORMAT_VERSION = 3
_UNFINISHED_NAME = ".scenes-unfinished.json"
_MIN_IMAGE_SIZE = 32


def _check(parameters: Mapping[str, Any]) -> None:
    for field, choices in (("variant", get_args(pictures.SceneVariant)), ("layout", get_args(Layout))):
        if parameters[field] not in choices:
            remedy = f"Choose {' or '.join(choices)}."
            raise InputError(field, parameters[field], f"is not a {field} of scenes", remedy)
    if parameters["variant"] == "multi-object" and parameters["layout"] != "coco":
        remedy = "Choose the layout coco for the variant multi-object."
        raise InputError("layout", parameters["layout"], "holds one object per picture", remedy)
    for field, lowest, problem in (
        ("num_train", outlines.NUM_CLASSES, "leaves a class without a picture"),
        ("num_val", outlines.NUM_CLASSES, "leaves a class without a picture"),
        ("image_size", _MIN_IMAGE_SIZE, "is too small to show how the textures differ"),
        ("seed", 0, "is negative"),
    ):
        if parameters[field] < lowest:
            raise InputError(field, parameters[field], problem, f"Give a whole number of at least {lowest}.")
    if not 0 <= parameters["correlation"] <= 1:
        raise InputError("correlation", parameters["correlation"], "is not a probability", "Give a value from 0 to 1.")


def _claim_folder(out: Path, record: str) -> bool:
    """Make sure that `out` may be written, and return whether there is anything left to do."""
    if out.exists() and not out.is_dir():
        raise InputError("out", out, "is a file", "Name a new or empty folder.")
    for name in (MARKER_NAME, _UNFINISHED_NAME):
        # A record without its last character was cut short by a kill, before any picture: as if there were none.
        found = (out / name).read_text(encoding="utf-8") if (out / name).exists() else ""
        if found == record:
            return name != MARKER_NAME
        if found.endswith("\n"):
            problem = "holds scenes built with other parameters"
            raise InputError("out", out, problem, "Name another folder or delete it.")
    if out.exists() and any(path.name != _UNFINISHED_NAME for path in out.iterdir()):
        raise InputError("out", out, "holds files that are not scenes", "Name a new or empty folder.")
    out.mkdir(parents=True, exist_ok=True)
    # It has another name until all is written, so that a build that was killed can be continued.
    (out / _UNFINISHED_NAME).write_text(record, encoding="utf-8")
    return True


def build_scenes(
    out: Path,
    *,
    variant: pictures.SceneVariant,
    layout: Layout | None = None,
    num_train: int = 4000,
    num_val: int = 900,
    image_size: int = 96,
    correlation: float = 0.9,
    seed: int = 0,
) -> None:
    """Build the embedded data set `scenes`: nine classes of shape on nine families of texture, correlated.

    A picture depends on the seed, its split and its number alone. `scenes.json` in `out` records the
    parameters and is written last: a folder that holds the same ones is left as it is, and a build that was
    cut short is done again over its own files.

    Args:
        out: A new or empty folder, or one built with the same parameters.
        variant: `single-object`, or `multi-object` with two to three objects of classes that go together.
        layout: `backgrounds-challenge` (single-object alone; all variants of both splits, and masks) or
            `coco`; by default the first for `single-object` and the second for `multi-object`.
        num_train: Training pictures, at least 9; class is the picture's number modulo 9.
        num_val: Test pictures, at least 9; their objects and backgrounds are drawn apart.
        image_size: Side of a picture in pixels, at least 32.
        correlation: Probability that a class goes with its own background family (and partner class), in
            [0, 1]; otherwise it goes with one of the other eight, drawn uniformly.
        seed: Seed of every draw, at least 0.

    Raises:
        InputError: A parameter is out of its range, or `out` holds something else.
    """
    chosen: Layout = layout or ("backgrounds-challenge" if variant == "single-object" else "coco")
    parameters = {
        "name": "scenes",
        "format_version": _FORMAT_VERSION,
        "variant": variant,
        "layout": chosen,
        "num_train": num_train,
        "num_val": num_val,
        "image_size": image_size,
        "correlation": float(correlation),
        "seed": seed,
    }
    _check(parameters)
    if not _claim_folder(out, json.dumps(parameters, indent=2) + "\n"):
        return
    write = write_coco if chosen == "coco" else write_backgrounds_challenge
    for split, count in zip(pictures.SPLITS, (num_train, num_val), strict=True):
        draw = partial(pictures.draw_plan, seed, split, variant=variant, correlation=correlation)
        write(out, split, [draw(index) for index in range(count)], image_size)
    (out / _UNFINISHED_NAME).replace(out / MARKER_NAME)
