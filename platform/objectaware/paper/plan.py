"""The plan of each table: which stage computes each of its cells.

Networks are trainings by the names of their recipes, and published ones. A function named after a table computes its
cells: it takes the names of a row and a column and a seed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from objectaware.config import PRESETS
from objectaware.errors import InputError
from objectaware.paper import Key, Place, Table, load_table, nodes, read_data
from objectaware.paper.nodes import (
    Images,
    Linear,
    Localize,
    MaskScore,
    Network,
    Node,
    Pretrain,
    Published,
    Value,
    options,
)
from objectaware.recipes import merged

TRAINING_IMAGES = {
    "coco": Images("COCO", "train"),
    "in9": Images("ImageNet-9", "train"),
    "imagenet10": Images("ImageNet", "train", subset="lists/imagenet-10-percent.txt"),
    "cub": Images("CUB-200-2011", "redo-train"),
    "flowers": Images("Flowers102", "redo-train"),
}
"""Training images by the part of a recipe's name after the backbone."""

SEGMENTED_IMAGES = {
    "CUB": Images("CUB-200-2011", "redo-test"),
    "Flowers": Images("Flowers102", "redo-test"),
    "COCO": Images("COCO", "val"),
    "ImageNet-9": Images("ImageNet-9", "val"),
}
"""Images whose masks are scored, by the tables' names of the data sets."""

CROP: nodes.Options = options(PRESETS["crop"])
"""Options for object crop's boxes and for the masks that are scored."""
MIXUP: nodes.Options = options(PRESETS["mixup"])
"""Options for background mixup's soft masks."""

_NAMES: dict[str, dict[str, str]] = read_data("names.yaml")
METHODS = {"MoCov2": "moco", "BYOL": "byol"}
"""Methods in the names of recipes, by the paper's names."""

SUPERVISED_IMAGENET = Published("torchvision ResNet-50 (ImageNet, supervised)")
MOCO_IMAGENET = Published("MoCo v2 ResNet-50 (ImageNet)")
FASTER_RCNN = Published("torchvision Faster R-CNN ResNet-50 (COCO)")
MASK_RCNN = Published("torchvision Mask R-CNN ResNet-50 (COCO)")
REDO = {name: Published(f"ReDO ({name})", "masks", images) for name, images in SEGMENTED_IMAGES.items()}
PUBLISHED_NAMES = tuple(
    one.name for one in (SUPERVISED_IMAGENET, MOCO_IMAGENET, FASTER_RCNN, MASK_RCNN, *REDO.values())
)
"""Names of published networks and masks, as `--networks` takes them."""

_MIX_PROBABILITIES = {"moco": 0.4, "byol": 0.3}

_RECIPE_DATA = {"CUB": "cub", "Flowers": "flowers", "COCO": "coco", "ImageNet-9": "in9"}

BOXED = {
    "ImageNet": Images("ImageNet", "wsol-test"),
    "CUB": Images("CUB-200-2011", "wsol-test"),
    "Flowers": Images("Flowers102", "redo-test"),
    "VOC": Images("VOC2012", "val"),
    "OpenImages": Images("OpenImages", "wsol-test"),
}
"""Measured parts of the data sets with boxes. The paper does not say which part of Flowers."""

# The classifier of MoCo v2's published network. The paper does not say how its penalty was chosen. Take as many images
# as for COCO.
_IMAGENET_CLASSIFIER = Linear(
    MOCO_IMAGENET, Images("ImageNet", "train"), (("val", Images("ImageNet", "val")),), holdout=10000
)

_CROP_POLICIES = _NAMES["crops"]
"""Ends of recipes' names by the paper's names of the crops."""
_PUBLISHED = {"Faster R-CNN": FASTER_RCNN, "Mask R-CNN": MASK_RCNN}

COCO_TRAIN = Images("COCO", "train")
COCO_VAL = Images("COCO", "val")
_OBJECTS = Images("COCO-Crop", "val")
BIASED_CLASSES = ("giraffe", "zebra")
"""Classes that occur together in COCO (appendix C.2)."""

IN9_TRAIN = Images("ImageNet-9", "train")
IN9_HOLDOUT = 0.05
"""Share of the training images that chooses the penalty (appendix B.3)."""

_BACKGROUND_POLICIES = _NAMES["backgrounds"]
"""Ends of recipes' names by the paper's names of the augmentations."""

CHALLENGE_VARIANTS = ("original", "only_bg_b", "only_bg_t", "only_fg", "mixed_same", "mixed_rand", "mixed_next")
"""Variants of the Backgrounds Challenge in the table's order; the paper prints no `no_fg`."""
_GAP = "BG-Gap"

CORRUPTIONS = _NAMES["corruptions"]
"""Folders of ImageNet-C by the paper's names of the corruptions; a test compares them with the data set."""
SEVERITIES = range(1, 6)
SCORED_FACTORS = ("size", "location", "rotation")
"""SI-Score's factors that the paper averages; a test compares them with the data set."""


def recipe_parts(recipe: str) -> tuple[str, str, str, str]:
    """Split the name of a recipe into METHOD, BACKBONE, DATA and POLICY, which is empty if there is none."""
    found = re.fullmatch(rf"([^_]+)_(.+?)_({'|'.join(TRAINING_IMAGES)})(?:_(.+))?", recipe)
    assert found is not None, f"{recipe} is not METHOD_BACKBONE_DATA_POLICY of a data set of the paper"
    method, backbone, data, policy = found.groups(default="")
    return method, backbone, data, policy


def training(recipe: str, *, seed: int = 0, mix_probability: float | None = None) -> Pretrain:
    """Return a training with the stages that it needs.

    All seeds share the masks that the network of seed 0 finds.

    Args:
        recipe: METHOD_BACKBONE_DATA or METHOD_BACKBONE_DATA_POLICY.
        seed: Seed of the training.
        mix_probability: p_mix of a background policy; by default the recipe's.
    """
    method, backbone, data, policy = recipe_parts(recipe)
    images = TRAINING_IMAGES[data]
    masks = None
    if policy in ("object_crop", "object_crop_second"):
        # Both methods use the boxes of MoCo v2 (appendix B.2).
        source = f"moco_{backbone}_{data}" + ("_object_crop" if policy.endswith("second") else "")
        masks = Localize(images, training(source), CROP)
    elif policy in ("background_mixup", "background_hardmix"):
        masks = Localize(images, training(f"{method}_{backbone}_{data}"), MIXUP)
    if policy.startswith("background") and mix_probability is None:
        mix_probability = _MIX_PROBABILITIES[method]
    return Pretrain(recipe, images, seed, masks, mix_probability)


def contracam(column: str, seed: int = 0, *, group_size: int | None = None, **changed: object) -> Localize:
    """Return ContraCAM by MoCo v2 trained on the same data set, with some fields of appendix B.1 changed."""
    network = training(f"moco_resnet18_{_RECIPE_DATA[column]}", seed=seed)
    size = {} if group_size is None else {"group_size": group_size}
    return Localize(SEGMENTED_IMAGES[column], network, options(merged(CROP.fields(), {"localizer": changed, **size})))


def _miou(masks: Localize | Published) -> Value:
    assert masks.images is not None, masks
    return Value(MaskScore(masks, masks.images), (("scores", "found", "miou"),))


def _loc_main(row: Key, column: Key, seed: int) -> Value:
    """`loc-main`: ReDO, and ContraCAM with and without negative signal removal."""
    if row == ("ReDO",):
        return _miou(REDO[column[0]])
    changed = {"remove_negative_signals": False} if "w/o" in row[0] else {}
    return _miou(contracam(column[0], seed, **changed))


def _loc_cam(row: Key, column: Key, seed: int) -> Value:
    """`loc-cam`: each network is trained on the data set that it is measured on."""
    if row[0] == "MoCov2":
        return _miou(contracam(column[0], seed))
    supervised = training(f"supervised_resnet18_{_RECIPE_DATA[column[0]]}", seed=seed)
    chosen = options(localizer={"name": "classifier_cam", "expansion": 2}, crf=True, mask_threshold=0.5)
    return _miou(Localize(SEGMENTED_IMAGES[column[0]], supervised, chosen, classifier=supervised))


def _loc_cam_full(row: Key, column: Key, seed: int) -> Value:
    """`loc-cam-full`: networks trained on ImageNet; one iteration, no CRF (appendix B.1)."""
    model, method, doubled = row
    network: Network = SUPERVISED_IMAGENET if model == "Supervised" else MOCO_IMAGENET
    expansion = 2 if doubled == "✓" else 1
    if method.startswith("ContraCAM"):
        return _boxes(imagenet_contracam(column[0], expansion), column[0])
    classifier = network if model == "Supervised" else _IMAGENET_CLASSIFIER
    chosen = options(localizer={"name": "classifier_cam", "expansion": expansion}, crf=False)
    return _boxes(Localize(BOXED[column[0]], network, chosen, classifier=classifier), column[0])


def imagenet_contracam(column: str, expansion: int = 2) -> Localize:
    """Return ContraCAM by the published MoCo v2, with one iteration."""
    localizer = {"name": "contracam", "num_iterations": 1, "expansion": expansion}
    return Localize(BOXED[column], MOCO_IMAGENET, options(localizer=localizer, crf=False))


def saliency_masks(method: str, column: str) -> Localize:
    """Return a method of `loc-saliency` by the published MoCo v2; ContraCAM is the row Res×2 of `loc-cam-full`."""
    if method.startswith("ContraCAM"):
        return imagenet_contracam(column)
    localizer = {"name": load_table("loc-saliency").localizers[method], "num_gradients": 10}
    return Localize(BOXED[column], MOCO_IMAGENET, options(localizer=localizer, crf=False))


def _boxes(masks: Localize, column: str) -> Value:
    """Return MaxBoxAccV2 of soft masks; on OpenImages PxAP, as the official tool does."""
    measure = "px_ap" if column == "OpenImages" else "max_box_acc_v2"
    return Value(MaskScore(masks, masks.images), (("scores", "found", measure),))


_CLASSIFIED = {
    "COCO-Crop": ("COCO-Crop", "val", 10000),
    "CIFAR10": ("CIFAR-10", "test", 10000),
    "CIFAR100": ("CIFAR-100", "test", 10000),
    "CUB": ("CUB-200-2011", "test", 1000),
    "Flowers": ("Flowers102", "test", None),
    "Food": ("Food-101", "test", 7575),
    "Pets": ("Oxford-IIIT Pets", "test", 740),
}
"""Data sets of linear evaluation: name, test part, number of training images that choose the penalty."""


def coco_network(model: str, backbone: str, crop: str, seed: int) -> Network:
    """Return a network trained on COCO, by the paper's names of method, backbone and crop, or a published detector."""
    if model in _PUBLISHED:
        return _PUBLISHED[model]
    return training(f"{METHODS[model]}_{backbone.lower().replace('-', '')}_coco{_CROP_POLICIES[crop]}", seed=seed)


def classified(network: Network, name: str) -> Linear:
    """Return the linear evaluation on a data set, by its name in the tables."""
    data, test, holdout = _CLASSIFIED[name]
    return Linear(network, Images(data, "train"), (("test", Images(data, test)),), holdout)


def _classified_accuracy(network: Network, name: str) -> Value:
    return Value(classified(network, name), (("accuracies", "test"),))


def _multi_imagenet(row: Key, column: Key, seed: int) -> Value:
    """`multi-imagenet`: ResNet-18 on COCO, or on a tenth of ImageNet."""
    model, data, crop = row
    if data == "COCO":
        return _classified_accuracy(coco_network(model, "ResNet-18", crop, seed), column[0])
    return _classified_accuracy(training(f"{METHODS[model]}_resnet18_imagenet10", seed=seed), column[0])


def _multi_second(row: Key, column: Key, seed: int) -> Value:
    """`multi-second`: boxes of the original and of the debiased network."""
    model, crop, iteration = row
    if iteration == "2":
        return _classified_accuracy(
            training(f"{METHODS[model]}_resnet18_coco_object_crop_second", seed=seed), column[0]
        )
    return _classified_accuracy(coco_network(model, "ResNet-18", crop, seed), column[0])


def class_distance(network: Network) -> nodes.ClassDistance:
    """Return the distance of giraffes and zebras among the objects of COCO's validation images."""
    return nodes.ClassDistance(network, _OBJECTS, BIASED_CLASSES)


def kept(crop: str, epoch: int, seed: int = 0) -> nodes.Kept:
    """Return MoCo v2's ResNet-50 on COCO after some epochs; `crop` is a row of `multi-bias-epoch`."""
    recipe = "moco_resnet50_coco" + ("" if crop == "MoCov2" else _CROP_POLICIES[crop])
    network = training(recipe, seed=seed)
    assert isinstance(network, Pretrain)
    return nodes.Kept(network, epoch)


def in9_network(model: str, augmentation: str, seed: int) -> Pretrain:
    """Return a network trained on ImageNet-9, by the paper's names of method and augmentation."""
    return training(f"{METHODS[model]}_resnet18_in9{_BACKGROUND_POLICIES[augmentation.removeprefix('+')]}", seed=seed)


def _linear_on_in9(network: Network, name: str, parts: Iterable[str]) -> Linear:
    return Linear(network, IN9_TRAIN, tuple((part, Images(name, part)) for part in parts), IN9_HOLDOUT)


def challenge(network: Network) -> Linear:
    """Return the linear evaluation on ImageNet-9, measured on every variant of the Backgrounds Challenge."""
    return _linear_on_in9(network, "Backgrounds Challenge", CHALLENGE_VARIANTS)


def _challenge_accuracy(network: Network, name: str) -> Value:
    variant = "bg_gap" if name == _GAP else name.lower().replace("-", "_")
    return Value(challenge(network), (("accuracies", variant),))


def _bg_probability(row: Key, column: Key, seed: int) -> Value:
    """`bg-probability`; at p = 0 nothing is mixed, which is the baseline."""
    method, mix = METHODS[row[0]], float(row[1])
    recipe = f"{method}_resnet18_in9" + ("_background_mixup" if mix else "")
    return _challenge_accuracy(training(recipe, seed=seed, mix_probability=mix or None), column[0])


_SHIFTED: dict[str, tuple[str, ...]] = {
    "ImageNet-9": ("val",),
    **dict.fromkeys(("ImageNet-Sketch-9", "Stylized-ImageNet-9", "ImageNet-R-9", "ObjectNet-9"), ("test",)),
    "SI-Score-9": SCORED_FACTORS,
    "ImageNet-C-9": tuple(f"{name}-{severity}" for name in CORRUPTIONS.values() for severity in SEVERITIES),
}
"""Test parts of ImageNet-9 and of the shifted sets, which are equally large within a set."""


def _shifted_accuracy(network: Network, name: str, parts: Iterable[str] | None = None) -> Value:
    """Return the mean accuracy over all parts, or some, of a shifted set or of ImageNet-9's own validation images."""
    paths = tuple(("accuracies", part) for part in parts or _SHIFTED[name])
    return Value(_linear_on_in9(network, name, _SHIFTED[name]), paths)


def _bg_imagenetc(row: Key, column: Key, seed: int) -> Value:
    """`bg-imagenetc`: the mean over five severities."""
    parts = [f"{CORRUPTIONS[column[1]]}-{severity}" for severity in SEVERITIES]
    return _shifted_accuracy(in9_network(row[0], row[1], seed), "ImageNet-C-9", parts)


def _det(row: Key, column: Key, seed: int) -> Value:
    node = nodes.Detection(coco_network(column[0], "ResNet-50", column[1], seed), COCO_TRAIN, COCO_VAL)
    return Value(node, (("box_ap" if row[0] == "COCO Detection" else "mask_ap",),))


def _bg_domain(row: Key, column: Key, seed: int) -> Value:
    return _shifted_accuracy(in9_network(row[0], row[1], seed), column[0])


def _bg_main(row: Key, column: Key, seed: int) -> Value:
    """Compute a cell of `bg-main` and `bg-soft-hard`: one row per test set, one column per network."""
    return _challenge_accuracy(in9_network(column[0], column[1], seed), row[0])


_CELLS: dict[str, Callable[[Key, Key, int], Value]] = {
    "loc-main": _loc_main,
    "loc-cam": _loc_cam,
    # The rows of `loc-cam-full` that its notes name.
    "loc-cam-transfer": lambda row, column, seed: _loc_cam_full(
        (*row, "✓" if row[0] == "MoCov2" else "-"), column, seed
    ),
    "multi-main": lambda row, column, seed: _classified_accuracy(coco_network(row[0], row[1], row[2], seed), column[0]),
    "multi-det": _det,
    "multi-shift": lambda row, column, seed: _shifted_accuracy(
        coco_network(row[0], "ResNet-50", row[1], seed), column[0]
    ),
    "bg-main": _bg_main,
    "bg-domain": _bg_domain,
    "loc-iter": lambda row, column, seed: _miou(contracam(column[0], seed, num_iterations=int(row[0]))),
    # 64 is the default and is left out, so that these masks are the same as in the other tables.
    "loc-batch": lambda row, column, seed: _miou(
        contracam(column[0], seed, group_size=None if row[0] == "64" else int(row[0]))
    ),
    "loc-cam-full": _loc_cam_full,
    "loc-saliency": lambda row, column, seed: _boxes(saliency_masks(row[0], column[0]), column[0]),
    "multi-bias": lambda row, column, seed: Value(
        class_distance(coco_network("MoCov2", "ResNet-50", column[0], seed)), (("distance",),)
    ),
    # ResNet-50 after each hundred epochs, the mean of five draws.
    "multi-bias-epoch": lambda row, column, seed: Value(
        nodes.FewShot(kept(row[0], int(column[0]), seed), _OBJECTS, BIASED_CLASSES), (("error", "mean"),)
    ),
    # ResNet-50 and the backbones of published detectors.
    "multi-supervised-lineval": lambda row, column, seed: _classified_accuracy(
        coco_network(row[0], "ResNet-50", row[1], seed), column[0]
    ),
    "multi-supervised-det": _det,
    # CIFAR-10 by class.
    "multi-class-wise": lambda row, column, seed: Value(
        classified(coco_network(row[0], "ResNet-50", row[1], seed), "CIFAR10"),
        (("class_accuracies", "test", column[0].lower()),),
    ),
    "multi-imagenet": _multi_imagenet,
    "multi-second": _multi_second,
    "bg-soft-hard": _bg_main,
    "bg-probability": _bg_probability,
    "bg-more-dist": _bg_domain,
    "bg-more-bg": lambda row, column, seed: _challenge_accuracy(in9_network(row[0], row[1], seed), column[0]),
    "bg-imagenetc": _bg_imagenetc,
    "bg-more-datasets": _bg_domain,
}
"""Functions that compute a table's cells from row, column and seed."""


@dataclass(frozen=True)
class TablePlan:
    """Hold the stages behind a table.

    Attributes:
        table: The table, with the paper's numbers.
        seeds: Seeds of the trainings behind each number.
        cells: One value per seed, by row and column; no entry for a dash in the paper.
    """

    table: Table
    seeds: tuple[int, ...]
    cells: dict[Place, tuple[Value, ...]]

    def nodes(self) -> list[Node]:
        """Return all stages, each once and after the stages that it needs."""
        return nodes.ordered(value.node for values in self.cells.values() for value in values)


def plan_table(label: str, *, num_seeds: int | None = None) -> TablePlan:
    """Plan a table.

    Args:
        label: One of `TABLE_LABELS`.
        num_seeds: Trainings per number, with seeds from 0; by default as many as in the paper.

    Raises:
        InputError: The paper has no such table, or `num_seeds` is below 1.
    """
    table = load_table(label)
    if num_seeds is not None and num_seeds < 1:
        raise InputError("seeds", num_seeds, "leaves no training", "Give the number of trainings, 1 or more.")
    seeds = tuple(range(num_seeds or table.num_trials))
    cell = _CELLS[label]
    cells = {
        (row, column): tuple(cell(row, column, seed) for seed in seeds)
        for (row, column), printed in table.cells().items()
        if printed is not None
    }
    return TablePlan(table, seeds, cells)
