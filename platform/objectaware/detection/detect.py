"""Detectors, fine-tuned here or published by torchvision, and what they find in images as COCO's result records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pycocotools import mask as coco_mask
from torch import Tensor, nn
from torchvision.models import detection as published
from torchvision.models.detection._utils import overwrite_eps
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.roi_heads import paste_masks_in_image

from objectaware.data.sets.coco import CocoDataset
from objectaware.data.truth import Orientation
from objectaware.detection.data import prepared, read_pixels, resized_shape
from objectaware.detection.network import MaskRCNN, Target
from objectaware.errors import InputError
from objectaware.methods.foreign import without_wrappers
from objectaware.methods.weights_file import load_weights

Record = dict[str, Any]

Detector = Callable[[NDArray[np.uint8]], Target]
"""From an image (H, W, 3) to its objects: `boxes` (n, 4) in its pixels, `labels` (n,) from 1, `scores` (n,), and, of
a network that finds masks, `masks` (n, 1, H, W) in [0, 1]."""

NUM_OUTPUTS = 91
"""Outputs of these networks: COCO's category numbers, some of which are not used, and background."""

LABELS: Mapping[str, int] = {
    name: label
    for label, name in enumerate(published.FasterRCNN_ResNet50_FPN_Weights.COCO_V1.meta["categories"])
    if name not in ("__background__", "N/A")
}
"""Label of each of COCO's 80 categories, by name."""

_EPSILON = 0.0  # of batch norm, which the published weights were trained with (pytorch/vision #2933)


def fine_tuned_detector(network: MaskRCNN, *, short_side: int, max_side: int, device: torch.device) -> Detector:
    """Make a detector from a network in evaluation mode.

    Args:
        network: The network.
        short_side: Short side in pixels to which images are resized …
        max_side: … unless the long one would be longer than this.
        device: Device of the network.
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
    """Find the objects of some images.

    Args:
        detector: Finds the objects of one image.
        coco: The data set.
        indices: Images of the data set.
        category_numbers: COCO's number of each of the detector's labels; objects of other labels are left out.

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
    """Return the results in the pixels in which the image was annotated."""
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
    """Turn soft masks (n, 1, H, W) and return their run-length codes, with foreground from one half on."""
    binary = (masks[:, 0] >= 0.5).to(torch.uint8).cpu().numpy()
    if not len(binary):
        return []
    codes = coco_mask.encode(np.asfortranarray(turn_back.pixels(binary.transpose(1, 2, 0))))
    return [{"size": list(code["size"]), "counts": code["counts"].decode("ascii")} for code in codes]


def load_published(path: Path, *, short_side: int = 800, max_side: int = 1333, num_proposals: int = 1000) -> nn.Module:
    """Load fasterrcnn_resnet50_fpn or maskrcnn_resnet50_fpn, recognised by its keys.

    Args:
        path: State dict: fasterrcnn_resnet50_fpn_coco-258fb6c6.pth or maskrcnn_resnet50_fpn_coco-bf2d0c1e.pth as
            torchvision publishes them, or one of the same form.
        short_side: Short side in pixels to which images are resized …
        max_side: … unless the long one would be longer than this.
        num_proposals: Proposals per image.

    Returns:
        torchvision's network in evaluation mode.

    Raises:
        InputError: The file cannot be read or holds another network.
    """
    if not path.is_file():
        raise InputError("published", str(path), "does not exist", "Give a file that torchvision publishes.")
    state = load_weights(path, field="published")
    if isinstance(state, Mapping):
        state = {without_wrappers(str(key)): value for key, value in state.items()}
    has_masks = isinstance(state, Mapping) and any(key.startswith("roi_heads.mask_") for key in state)
    backbone = resnet_fpn_backbone(backbone_name="resnet50", weights=None, trainable_layers=5)
    build = published.MaskRCNN if has_masks else published.FasterRCNN
    network: nn.Module = build(
        backbone,
        NUM_OUTPUTS,
        min_size=short_side,
        max_size=max_side,
        rpn_post_nms_top_n_test=num_proposals,
    )
    try:
        network.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        problem = f"is not a {'maskrcnn' if has_masks else 'fasterrcnn'}_resnet50_fpn ({_first_reasons(error)})"
        remedy = "Give the state dict of torchvision's fasterrcnn_resnet50_fpn or maskrcnn_resnet50_fpn."
        raise InputError("published", str(path), problem, remedy) from error
    overwrite_eps(network, _EPSILON)
    return network.eval()


def published_detector(network: nn.Module, device: torch.device) -> Detector:
    """Make a detector from a network of `load_published`, which resizes and normalises its input."""

    @torch.inference_mode()
    def detect(image: NDArray[np.uint8]) -> Target:
        pixels: Tensor = torch.tensor(image).permute(2, 0, 1).to(device) / 255
        (found,) = network([pixels])
        return found

    return detect


def _first_reasons(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{' '.join(lines[1:3] or lines)[:200]}"
