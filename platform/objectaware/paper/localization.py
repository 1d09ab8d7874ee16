"""Cells of the tables on localization."""

from __future__ import annotations

from objectaware.paper.content import Key, load_table
from objectaware.paper.nodes import Images, Linear, Localize, MaskScore, Network, Published, options
from objectaware.paper.trainings import CROP, MOCO_IMAGENET, REDO, SEGMENTED_IMAGES, SUPERVISED_IMAGENET, training
from objectaware.paper.values import Value
from objectaware.recipes import merged

_RECIPE_DATA = {"CUB": "cub", "Flowers": "flowers", "COCO": "coco", "ImageNet-9": "in9"}

BOXED = {
    "ImageNet": Images("ImageNet", "wsol-test"),
    "CUB": Images("CUB-200-2011", "wsol-test"),
    "Flowers": Images("Flowers102", "redo-test"),
    "VOC": Images("VOC2012", "val"),
    "OpenImages": Images("OpenImages", "wsol-test"),
}
"""Data sets with boxes, the part that is measured; the paper does not say which part of Flowers."""

# The classifier of MoCo v2's published network. How its penalty was chosen is not said: by as many images as of COCO.
_IMAGENET_CLASSIFIER = Linear(
    MOCO_IMAGENET, Images("ImageNet", "train"), (("val", Images("ImageNet", "val")),), holdout=10000
)


def contracam(column: str, seed: int = 0, *, group_size: int | None = None, **changed: object) -> Localize:
    """ContraCAM on a data set by MoCo v2 trained on it, some of its settings (appendix B.1) changed."""
    network = training(f"moco_resnet18_{_RECIPE_DATA[column]}", seed=seed)
    size = {} if group_size is None else {"group_size": group_size}
    return Localize(SEGMENTED_IMAGES[column], network, options(merged(CROP.fields(), {"localizer": changed, **size})))


def _miou(masks: Localize | Published, images: Images) -> Value:
    return Value(MaskScore(masks, images), (("scores", "found", "miou"),))


def main(row: Key, column: Key, seed: int) -> Value:
    """`loc-main`: ReDO, and ContraCAM with and without negative signal removal."""
    images = SEGMENTED_IMAGES[column[0]]
    if row == ("ReDO",):
        return _miou(REDO[column[0]], images)
    changed = {"remove_negative_signals": False} if "w/o" in row[0] else {}
    return _miou(contracam(column[0], seed, **changed), images)


def iterations(row: Key, column: Key, seed: int) -> Value:
    """`loc-iter`."""
    found = contracam(column[0], seed, num_iterations=int(row[0]))
    return _miou(found, found.images)


def batch(row: Key, column: Key, seed: int) -> Value:
    """`loc-batch`; a group of 64 is the default, and named so that its masks are those of the other tables."""
    found = contracam(column[0], seed, group_size=None if row[0] == "64" else int(row[0]))
    return _miou(found, found.images)


def classifier_cam_trained_there(row: Key, column: Key, seed: int) -> Value:
    """`loc-cam`: each network trained on the data set that it is measured on."""
    images = SEGMENTED_IMAGES[column[0]]
    if row[0] == "MoCov2":
        return _miou(contracam(column[0], seed), images)
    supervised = training(f"supervised_resnet18_{_RECIPE_DATA[column[0]]}", seed=seed)
    chosen = options(localizer={"name": "classifier_cam", "expansion": 2}, crf=True, mask_threshold=0.5)
    return _miou(Localize(images, supervised, chosen, classifier=supervised), images)


def transfer(row: Key, column: Key, seed: int) -> Value:
    """`loc-cam-transfer`: the rows of `loc-cam-full` that its notes name."""
    return full((*row, "✓" if row[0] == "MoCov2" else "-"), column, seed)


def full(row: Key, column: Key, seed: int) -> Value:
    """`loc-cam-full`: networks trained on ImageNet; one iteration, no CRF (appendix B.1)."""
    model, method, doubled = row
    network: Network = SUPERVISED_IMAGENET if model == "Supervised" else MOCO_IMAGENET
    expansion = 2 if doubled == "✓" else 1
    if method.startswith("ContraCAM"):
        return boxes(imagenet_contracam(column[0], expansion), column[0])
    classifier = network if model == "Supervised" else _IMAGENET_CLASSIFIER
    chosen = options(localizer={"name": "classifier_cam", "expansion": expansion}, crf=False)
    return boxes(Localize(BOXED[column[0]], network, chosen, classifier=classifier), column[0])


def imagenet_contracam(column: str, expansion: int = 2) -> Localize:
    """ContraCAM by the published MoCo v2, one iteration."""
    localizer = {"name": "contracam", "num_iterations": 1, "expansion": expansion}
    return Localize(BOXED[column], MOCO_IMAGENET, options(localizer=localizer, crf=False))


def saliency_masks(method: str, column: str) -> Localize:
    """A method of `loc-saliency` with the published MoCo v2; ContraCAM is the row Res×2 of `loc-cam-full`."""
    if method.startswith("ContraCAM"):
        return imagenet_contracam(column)
    localizer = {"name": load_table("loc-saliency").localizers[method], "num_gradients": 10}
    return Localize(BOXED[column], MOCO_IMAGENET, options(localizer=localizer, crf=False))


def saliency(row: Key, column: Key, seed: int) -> Value:
    """`loc-saliency`."""
    return boxes(saliency_masks(row[0], column[0]), column[0])


def boxes(masks: Localize, column: str) -> Value:
    """MaxBoxAccV2 of soft masks; PxAP on OpenImages, which is what the official tool measures there."""
    measure = "px_ap" if column == "OpenImages" else "max_box_acc_v2"
    return Value(MaskScore(masks, masks.images), (("scores", "found", measure),))
