"""Cells of the tables on contextual bias: networks trained on COCO."""

from __future__ import annotations

from objectaware.paper.content import Key
from objectaware.paper.nodes import ClassDistance, Detection, FewShot, Images, Kept, Linear, Network, Pretrain
from objectaware.paper.trainings import FASTER_RCNN, MASK_RCNN, METHODS, training
from objectaware.paper.values import Value

POLICIES = {
    "-": "",
    "Baseline": "",
    "CAM": "_object_crop",
    "OA-Crop (CAM)": "_object_crop",
    "+OA-Crop": "_object_crop",
    "GT": "_object_crop_ground_truth",
    "OA-Crop (GT)": "_object_crop_ground_truth",
}
"""The paper's names of the crops, and the ends of their recipes' names."""
_PUBLISHED = {"Faster R-CNN": FASTER_RCNN, "Mask R-CNN": MASK_RCNN}

COCO_TRAIN = Images("COCO", "train")
COCO_VAL = Images("COCO", "val")
_OBJECTS = Images("COCO-Crop", "val")
BIASED_CLASSES = ("giraffe", "zebra")
"""Classes that occur together in COCO (appendix C.2)."""


def _classified(name: str, train: str, test: str, holdout: int | None) -> tuple[Images, Images, int | None]:
    return Images(name, train), Images(name, test), holdout


CLASSIFIED = {
    "COCO-Crop": _classified("COCO-Crop", "train", "val", 10000),
    "CIFAR10": _classified("CIFAR-10", "train", "test", 10000),
    "CIFAR100": _classified("CIFAR-100", "train", "test", 10000),
    "CUB": _classified("CUB-200-2011", "train", "test", 1000),
    "Flowers": _classified("Flowers102", "train", "test", None),
    "Food": _classified("Food-101", "train", "test", 7575),
    "Pets": _classified("Oxford-IIIT Pets", "train", "test", 740),
}
"""Data sets of linear evaluation: training part, test part, and how many of the former choose the penalty."""


def coco_network(model: str, backbone: str, crop: str, seed: int) -> Network:
    """A network trained on COCO by the paper's names of method, backbone and crop; or a published detector."""
    if model in _PUBLISHED:
        return _PUBLISHED[model]
    return training(f"{METHODS[model]}_{backbone.lower().replace('-', '')}_coco{POLICIES[crop]}", seed=seed)


def classified(network: Network, name: str) -> Linear:
    """Linear evaluation on a data set by its name in the tables."""
    train, test, holdout = CLASSIFIED[name]
    return Linear(network, train, (("test", test),), holdout)


def _accuracy(network: Network, name: str) -> Value:
    return Value(classified(network, name), (("accuracies", "test"),))


def main(row: Key, column: Key, seed: int) -> Value:
    """`multi-main`."""
    return _accuracy(coco_network(row[0], row[1], row[2], seed), column[0])


def supervised(row: Key, column: Key, seed: int) -> Value:
    """`multi-supervised-lineval`: ResNet-50 and the backbones of published detectors."""
    return _accuracy(coco_network(row[0], "ResNet-50", row[1], seed), column[0])


def imagenet(row: Key, column: Key, seed: int) -> Value:
    """`multi-imagenet`: ResNet-18 on COCO, or on a tenth of ImageNet."""
    model, data, crop = row
    if data == "COCO":
        return _accuracy(coco_network(model, "ResNet-18", crop, seed), column[0])
    return _accuracy(training(f"{METHODS[model]}_resnet18_imagenet10", seed=seed), column[0])


def second(row: Key, column: Key, seed: int) -> Value:
    """`multi-second`: boxes of the original and of the debiased network."""
    model, crop, iteration = row
    if iteration == "2":
        return _accuracy(training(f"{METHODS[model]}_resnet18_coco_object_crop_second", seed=seed), column[0])
    return _accuracy(coco_network(model, "ResNet-18", crop, seed), column[0])


def class_wise(row: Key, column: Key, seed: int) -> Value:
    """`multi-class-wise`: CIFAR-10 by class."""
    node = classified(coco_network(row[0], "ResNet-50", row[1], seed), "CIFAR10")
    return Value(node, (("class_accuracies", "test", column[0].lower()),))


def distance(row: Key, column: Key, seed: int) -> Value:
    """`multi-bias`."""
    node = class_distance(coco_network("MoCov2", "ResNet-50", column[0], seed))
    return Value(node, (("distance",),))


def class_distance(network: Network) -> ClassDistance:
    """Distance of giraffes and zebras among the objects of COCO's validation images."""
    return ClassDistance(network, _OBJECTS, BIASED_CLASSES)


def one_shot(row: Key, column: Key, seed: int) -> Value:
    """`multi-bias-epoch`: ResNet-50 after each hundred epochs, the mean of five draws."""
    network = kept(row[0], int(column[0]), seed)
    return Value(FewShot(network, _OBJECTS, BIASED_CLASSES), (("error", "mean"),))


def kept(crop: str, epoch: int, seed: int = 0) -> Kept:
    """MoCo v2's ResNet-50 on COCO after some epochs; `crop` is a row of `multi-bias-epoch`."""
    recipe = "moco_resnet50_coco" + ("" if crop == "MoCov2" else POLICIES[crop])
    network = training(recipe, seed=seed)
    assert isinstance(network, Pretrain)
    return Kept(network, epoch)


def detection(row: Key, column: Key, seed: int) -> Value:
    """`multi-det` and `multi-supervised-det`."""
    node = Detection(coco_network(column[0], "ResNet-50", column[1], seed), COCO_TRAIN, COCO_VAL)
    return Value(node, (("box_ap" if row[0] == "COCO Detection" else "mask_ap",),))
