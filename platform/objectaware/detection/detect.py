"""What a network finds in images, as COCO's result records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pycocotools import mask as coco_mask
from torch import Tensor
from torchvision.models.detection.roi_heads import paste_masks_in_image

from objectaware.data.coco import CocoDataset
from objectaware.data.truth import Orientation
from objectaware.detection.data import prepared, read_pixels, resized_shape
from objectaware.detection.network import MaskRCNN
from objectaware.detection.regions import Target

Record = dict[str, Any]
Detector = Callable[[NDArray[np.uint8]], Target]
"""From an image (H, W, 3) to its objects: `boxes` (n, 4) in its pixels, `labels` (n,) from 1, `scores` (n,), and, of
a network that finds masks, `masks` (n, 1, H, W) in [0, 1]."""


def fine_tuned_detector(network: MaskRCNN, *, short_side: int, max_side: int, device: torch.device) -> Detector:
    """Makes a detector of a network in evaluation mode on a device.

    Args:
        network: The network.
        short_side: Short side in pixels that images are resized to …
        max_side: … unless the long one would be longer than this.
        device: Where the network is.
    """

    @torch.inference_mode()
    def detect(image: NDArray[np.uint8]) -> Target:
        shape = image.shape[:2]
        size = resized_shape(shape, short_side, max_side)
        (found,) = network([prepared(image, size).to(device)])
        boxes = found["boxes"] * torch.tensor([shape[1] / size[1], shape[0] / size[0]] * 2, device=device)
        return {**found, "boxes": boxes, "masks": paste_masks_in_image(found["masks"], boxes, shape)}

    return detect


def detect_objects(
    detector: Detector, coco: CocoDataset, indices: Sequence[int], category_numbers: Mapping[int, int]
) -> list[Record]:
    """Finds the objects of some images.

    Args:
        detector: Finds the objects of one.
        coco: The data set.
        indices: Images of it.
        category_numbers: COCO's number of each of the detector's labels; what has none is left out.

    Returns:
        COCO's results: `image_id`, `category_id`, `bbox` (x, y, width, height), `score`, and `segmentation` where
        the detector finds masks; in the pixels in which the annotations are, stored or upright.

    Raises:
        InputError: An image cannot be read.
    """
    return [
        record
        for index in indices
        for record in _records(
            detector(read_pixels(coco, index)), coco.turn(index).inverse, coco.numbers[index], category_numbers
        )
    ]


def _records(
    found: Target, turn_back: Orientation, image_number: int, category_numbers: Mapping[int, int]
) -> list[Record]:
    """Results in the pixels in which the image was annotated."""
    boxes = turn_back.boxes(found["boxes"].cpu().numpy(), turn_back.shape).tolist()
    scores = found["scores"].cpu().tolist()
    codes = [None] * len(boxes) if "masks" not in found else _run_lengths(found["masks"], turn_back)
    records = []
    for label, (left, top, right, bottom), score, code in zip(
        found["labels"].cpu().tolist(), boxes, scores, codes, strict=True
    ):
        if label not in category_numbers:
            continue
        box = [left, top, right - left, bottom - top]
        record = {"image_id": image_number, "category_id": category_numbers[label], "bbox": box, "score": score}
        records.append(record if code is None else {**record, "segmentation": code})
    return records


def _run_lengths(masks: Tensor, turn_back: Orientation) -> list[Any]:
    """Run-length codes of soft masks (n, 1, H, W), foreground from one half on, once they are turned."""
    binary = (masks[:, 0] >= 0.5).to(torch.uint8).cpu().numpy()
    if not len(binary):
        return []
    codes = coco_mask.encode(np.asfortranarray(turn_back.pixels(binary.transpose(1, 2, 0))))
    return [{"size": list(code["size"]), "counts": code["counts"].decode("ascii")} for code in codes]
