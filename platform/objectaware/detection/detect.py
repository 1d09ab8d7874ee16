"""Detectors, fine-tuned here or published by torchvision: what they find, its average precision, and their files."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import Tensor, nn
from torchvision.models import detection as published
from torchvision.models.detection._utils import overwrite_eps
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.roi_heads import paste_masks_in_image

from objectaware.config.variants import BACKBONE_NAMES
from objectaware.data.sets.coco import CocoDataset
from objectaware.detection.data import prepared, read_pixels, resized_shape
from objectaware.detection.network import MaskRCNN, Target
from objectaware.errors import InputError
from objectaware.methods.backbones import ResidualBackbone, build_backbone
from objectaware.methods.checkpoint import load_config, load_encoder, load_state, local_checkpoint, writing
from objectaware.methods.weights import load_weights, safetensors_metadata, without_wrappers

Record = dict[str, Any]

Kind = Literal["box", "mask"]
Scores = Mapping[Kind, tuple[dict[str, float], dict[str, float]]]
"""Results of `average_precision` by kind."""

_TYPES: Mapping[Kind, str] = {"box": "bbox", "mask": "segm"}
_STATISTICS = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")


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
_NAMES = "category_names"


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
    records: list[Record] = []
    for index in indices:
        found, turn_back = detector(read_pixels(coco, index)), coco.turn(index).inverse
        boxes = turn_back.boxes(found["boxes"].cpu().numpy(), turn_back.shape).tolist()
        labels, scores = (found[name].cpu().tolist() for name in ("labels", "scores"))
        masks = (found["masks"][:, 0] >= 0.5).cpu().numpy() if "masks" in found else [None] * len(boxes)
        for label, (left, top, right, bottom), score, mask in zip(labels, boxes, scores, masks, strict=True):
            if label in category_numbers:
                box = [left, top, right - left, bottom - top]
                number = {"image_id": coco.numbers[index], "category_id": category_numbers[label]}
                records.append({**number, "bbox": box, "score": score})
                if mask is not None:
                    code = coco_mask.encode(np.asfortranarray(turn_back.pixels(mask), dtype=np.uint8))
                    records[-1]["segmentation"] = {"size": list(code["size"]), "counts": code["counts"].decode("ascii")}
    return records


def category_numbers(annotations: Path) -> dict[str, int]:
    """Return COCO's numbers of the categories of an annotation file, by name, in ascending order of number."""
    categories = _read_truth(annotations).dataset["categories"]
    return {one["name"]: one["id"] for one in sorted(categories, key=lambda one: int(one["id"]))}


def average_precision(
    results: Sequence[Mapping[str, Any]],
    annotations: Path,
    image_numbers: Sequence[int],
    kind: Kind,
    *,
    known: Sequence[str] | None = None,
) -> tuple[dict[str, float], dict[str, float]]:
    """Score detections as COCO's server does, at most 100 per image.

    Args:
        results: COCO's result records of these images; with `segmentation` for the kind `mask`.
        annotations: COCO annotation file.
        image_numbers: COCO's numbers of the images to score.
        kind: Whether boxes or masks have to overlap with the truth.
        known: Names of the categories that the detector knows; the others do not count. By default all do.

    Returns:
        `ap` (mean over IoU 0.50 to 0.95), `ap50`, `ap75`, and `ap_small`, `ap_medium`, `ap_large` by the object's
        area (below 32², below 96², and above), in per cent; those without any object are missing. Second, the AP of
        each category that has objects, by name.
    """
    truth = _read_truth(annotations)
    with redirect_stdout(io.StringIO()):  # pycocotools prints its progress
        evaluation = COCOeval(truth, _loaded(truth, results, kind), _TYPES[kind])
        evaluation.params.imgIds = sorted(image_numbers)
        if known is not None:
            categories = truth.dataset["categories"]
            evaluation.params.catIds = sorted(one["id"] for one in categories if one["name"] in set(known))
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    statistics = dict(zip(_STATISTICS, evaluation.stats, strict=False))
    names = {category["id"]: category["name"] for category in truth.loadCats(truth.getCatIds())}
    # (IoU, recall, category, area, most detections): all areas, 100 detections.
    precision = evaluation.eval["precision"][:, :, :, 0, -1]
    by_category = {
        names[number]: 100 * float(np.mean(values))
        for place, number in enumerate(evaluation.params.catIds)
        if (values := precision[:, :, place])[values > -1].size
    }
    return {name: 100 * float(value) for name, value in statistics.items() if value > -1}, by_category


def _read_truth(annotations: Path) -> COCO:
    """Read an annotation file, and add the fields that pycocotools needs and that a file may lack."""
    truth = COCO()
    truth.dataset = json.loads(annotations.read_bytes())
    # pycocotools treats an object with the number 0 as not found.
    for number, annotation in enumerate(truth.dataset["annotations"], start=1):
        annotation |= {"id": number, "iscrowd": int(annotation.get("iscrowd", 0))}
    with redirect_stdout(io.StringIO()):
        truth.createIndex()
    return truth


def _loaded(truth: COCO, results: Sequence[Mapping[str, Any]], kind: Kind) -> COCO:
    """Convert the results for pycocotools, whose `loadRes` refuses an empty list."""
    if results:
        # With a box, the area that makes a mask small or large would be the box's (detectron2, coco_evaluation.py).
        unused = ("bbox",) if kind == "mask" else ("segmentation",)
        return truth.loadRes([{key: one[key] for key in one if key not in unused} for one in results])
    empty = COCO()
    empty.dataset = {"images": truth.dataset["images"], "categories": truth.dataset["categories"], "annotations": []}
    empty.createIndex()
    return empty


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
    sizes = {"min_size": short_side, "max_size": max_side, "rpn_post_nms_top_n_test": num_proposals}
    network: nn.Module = build(backbone, NUM_OUTPUTS, **sizes)
    try:
        network.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reasons = " ".join(lines[1:3] or lines)[:200]
        problem = f"is not a {'maskrcnn' if has_masks else 'fasterrcnn'}_resnet50_fpn ({reasons})"
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


def load_detector(address: str, *, num_test_proposals: int = 1000) -> tuple[MaskRCNN, tuple[str, ...]]:
    """Load a fine-tuned network: a checkpoint's folder, or a file of `export_detector`.

    Args:
        address: Path or URI.
        num_test_proposals: Proposals per image.

    Returns:
        The network in evaluation mode, and the names of its classes, of which the first has label 1.

    Raises:
        InputError: The address holds no fine-tuned network.
    """
    state, backbone, names = _open_detector(address)
    network = MaskRCNN(build_backbone(backbone), len(names), num_test_proposals=num_test_proposals)
    network.load_state_dict(state)
    return network.eval(), names


def export_detector(address: str, path: Path) -> None:
    """Write a fine-tuned network as safetensors, with the names of its backbone and classes in the metadata.

    Raises:
        InputError: There is no fine-tuned network, or the file cannot be written.
    """
    state, backbone, names = _open_detector(address)
    tensors = {name: value.contiguous().clone() for name, value in state.items()}
    with writing(path):
        safetensors.torch.save_file(tensors, path, metadata={"backbone": backbone, _NAMES: json.dumps(names)})


def _open_detector(address: str) -> tuple[dict[str, Tensor], str, tuple[str, ...]]:
    """Return the tensors of a fine-tuned network, and the names of its backbone and classes."""
    with local_checkpoint(address) as path:
        if path.is_dir():
            state, about = load_state(path)["method"], load_config(path)
        else:
            state, about = load_weights(path), dict(safetensors_metadata(path))
            about[_NAMES] = json.loads(about.get(_NAMES, "null"))
    if about.get(_NAMES) is None:
        problem = "holds no fine-tuned detector"
        raise InputError("checkpoint", address, problem, "Give a checkpoint of `evaluate detection`.")
    return state, str(about["backbone"]), tuple(about[_NAMES])


def export_detectron2(address: str, path: Path) -> str:
    """Write a checkpoint's backbone as detectron2's models load it (MODEL.WEIGHTS, with STRIDE_IN_1X1 False).

    Args:
        address: Address of any checkpoint that `load_encoder` reads.
        path: The new file, whose name has to end in `.pkl` for detectron2 to take it.

    Returns:
        Name of the backbone.

    Raises:
        InputError: The checkpoint cannot be read or holds no ResNet, the file's name does not fit, or it cannot be
            written.

    Source:
        facebookresearch/moco, detection/convert-pretrain-to-detectron2.py.
    """
    if path.suffix != ".pkl":
        raise InputError("out", str(path), "is not a name that detectron2 takes", "Give a file such as backbone.pkl.")
    with local_checkpoint(address) as local:
        encoder = load_encoder(local)
    backbone = encoder.backbone
    if not isinstance(backbone, ResidualBackbone):
        remedy = f"Give a checkpoint of {', '.join(BACKBONE_NAMES)}."
        raise InputError("backbone", backbone.name, "is not a ResNet with torchvision's names", remedy)
    content = {
        "model": {detectron2_name(name): value.numpy() for name, value in backbone.weights().items()},
        "__author__": "objectaware",
        "matching_heuristics": True,
    }
    with writing(path):
        path.write_bytes(pickle.dumps(content))
    return str(encoder.config["backbone"])


def detectron2_name(name: str) -> str:
    """Return detectron2's name of a backbone's tensor: `layer1.0.bn1.weight` is `res2.0.conv1.norm.weight`."""
    parts = name.split(".")
    if parts[0].startswith("layer"):
        parts[0] = f"res{int(parts[0].removeprefix('layer')) + 1}"
    else:
        parts.insert(0, "stem")
    renamed = ".".join(f"conv{part[2:]}.norm" if part in ("bn1", "bn2", "bn3") else part for part in parts)
    return renamed.replace("downsample.0", "shortcut").replace("downsample.1", "shortcut.norm")
