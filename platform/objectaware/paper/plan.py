"""The plan of each table: which stage computes each of its cells.

Networks are trainings by the names of their recipes, and published ones. A function computes the cells of one or more
tables. It takes a seed, and the names of a cell's row and column by the table's headers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from objectaware.config import PRESETS
from objectaware.data.sets.backgrounds_challenge import HOLDOUT_FRACTION
from objectaware.errors import InputError
from objectaware.paper import Place, Table, load_table, nodes, read_data
from objectaware.paper.nodes import Images, Kept, Node, Planned, Published, Value, options
from objectaware.recipes import merged

Names = Mapping[str, str]
"""Names of a cell's row and column, by the headers of its table."""
Protocol = Literal["paper", "official"]
"""How linear evaluations are done: as the paper's text says, or as the published code does."""

_NAMES: dict[str, dict[str, Any]] = read_data("names.yaml")


def _images(use: str) -> dict[str, Images]:
    return {name: Images(*part) for name, part in _NAMES[use].items()}


TRAINING_IMAGES = _images("training_images")
"""Training images by the part of a recipe's name after the backbone."""
SEGMENTED_IMAGES = _images("segmented_images")
"""Images whose masks are scored, by the tables' names of the data sets."""
BOXED = _images("boxed_images")
"""Images whose boxes are scored, by the tables' names of the data sets."""
_CLASSIFIED = _images("classified_images")

CROP = options(PRESETS["crop"])
"""Options for object crop's boxes and for the masks that are scored."""
MIXUP = options(PRESETS["mixup"])
"""Options for background mixup's soft masks."""

CORRUPTIONS: dict[str, str] = _NAMES["corruptions"]
"""Folders of ImageNet-C by the paper's names of the corruptions; a test compares them with the data set."""

SUPERVISED_IMAGENET = Published("torchvision ResNet-50 (ImageNet, supervised)")
MOCO_IMAGENET = Published("MoCo v2 ResNet-50 (ImageNet)")
_DETECTORS = {
    "Faster R-CNN": Published("torchvision Faster R-CNN ResNet-50 (COCO)"),
    "Mask R-CNN": Published("torchvision Mask R-CNN ResNet-50 (COCO)"),
}
REDO = {name: Published(f"ReDO ({name})", "masks", images) for name, images in SEGMENTED_IMAGES.items()}
PUBLISHED_NAMES = tuple(one.name for one in (SUPERVISED_IMAGENET, MOCO_IMAGENET, *_DETECTORS.values(), *REDO.values()))
"""Names of published networks and masks, as `--networks` takes them."""

_MIX_PROBABILITIES = {"moco": 0.4, "byol": 0.3}

# The classifier of MoCo v2's published network. The paper does not say how its penalty was chosen. Take as many images
# as for COCO.
_IMAGENET_CLASSIFIER = nodes.linear(
    MOCO_IMAGENET, Images("ImageNet", "train"), {"val": Images("ImageNet", "val")}, holdout_size=10000
)

COCO_VAL = SEGMENTED_IMAGES["COCO"]
BIASED_CLASSES = (nodes.ClassName("giraffe"), nodes.ClassName("zebra"))
"""Classes that occur together in COCO (appendix C.2)."""
_BIASED = {"data": Images("COCO-Crop", "val"), "class_names": BIASED_CLASSES}

CHALLENGE_VARIANTS = ("original", "only_bg_b", "only_bg_t", "only_fg", "mixed_same", "mixed_rand", "mixed_next")
"""Variants of the Backgrounds Challenge in the table's order; the paper prints no `no_fg`."""

SEVERITIES = range(1, 6)


def recipe_parts(recipe: str) -> tuple[str, str, str, str]:
    """Split the name of a recipe into METHOD, BACKBONE, DATA and POLICY, which is empty if there is none."""
    found = re.fullmatch(rf"([^_]+)_(.+?)_({'|'.join(TRAINING_IMAGES)})(?:_(.+))?", recipe)
    assert found is not None, f"{recipe} is not METHOD_BACKBONE_DATA_POLICY of a data set of the paper"
    method, backbone, data, policy = found.groups(default="")
    return method, backbone, data, policy


def training(recipe: str, *, seed: int = 0, mix_probability: float | None = None) -> Planned:
    """Return a training with the stages that it needs.

    All seeds share the masks that the network of seed 0 finds.

    Args:
        recipe: METHOD_BACKBONE_DATA or METHOD_BACKBONE_DATA_POLICY.
        seed: Seed of the training.
        mix_probability: p_mix of a background policy; by default the recipe's.
    """
    method, backbone, data, policy = recipe_parts(recipe)
    images = TRAINING_IMAGES[data]
    changed: dict[str, object] = {}
    probability = ""
    if policy in ("object_crop", "object_crop_second"):
        # Both methods use the boxes of MoCo v2 (appendix B.2).
        source = f"moco_{backbone}_{data}" + ("_object_crop" if policy.endswith("second") else "")
        changed["masks"] = nodes.localize(images, training(source), CROP)
    elif policy in ("background_mixup", "background_hardmix"):
        changed["masks"] = nodes.localize(images, training(f"{method}_{backbone}_{data}"), MIXUP)
    if policy.startswith("background"):
        changed["mix_probability"] = mix_probability or _MIX_PROBABILITIES[method]
        probability = f" p {changed['mix_probability']:g}"
    fields = options(data=images, seed=seed, policy=changed)
    return Planned("pretrain", fields, f"pretrain {recipe}{probability} seed {seed}", recipe)


def network_of(names: Names, seed: int = 0) -> Node:
    """Return the network behind a cell.

    Crops are trained on COCO, by default with a ResNet-50; augmentations of the background on ImageNet-9 with a
    ResNet-18 (appendices B.2 and B.3).
    """
    model = names.get("Model", "MoCov2")
    if model in _DETECTORS:
        return _DETECTORS[model]
    # At p = 0 nothing is mixed, which is the baseline.
    mix_probability = float(names.get("p_mix", 0)) or None
    if "Augmentation" in names or "p_mix" in names:
        backbone, data = "ResNet-18", "ImageNet-9"
        policy = names.get("Augmentation", "BG-Mixup (CAM)" if mix_probability else "Baseline")
    else:
        backbone, data = names.get("Network", "ResNet-50"), names.get("Dataset", "COCO")
        policy = names.get("Crop") or names["OA-Crop"]
    network = f"{_NAMES['methods'][model]}_{backbone.lower().replace('-', '')}_{_NAMES['data'][data]}"
    second = "_second" if names.get("Iter.") == "2" else ""
    recipe = f"{network}{_NAMES['policies'][policy.removeprefix('+')]}{second}"
    return training(recipe, seed=seed, mix_probability=mix_probability)


def contracam(data: str, seed: int = 0, *, group_size: int | None = None, **changed: object) -> Planned:
    """Return ContraCAM by MoCo v2 trained on the same data set, with some fields of appendix B.1 changed."""
    network = training(f"moco_resnet18_{_NAMES['data'][data]}", seed=seed)
    size = {} if group_size is None else {"group_size": group_size}
    return nodes.localize(SEGMENTED_IMAGES[data], network, merged(CROP, {"localizer": changed, **size}))


def _scored(masks: Node, images: Images, measure: str = "miou") -> Value:
    return Value(nodes.score(masks, images), (("scores", "found", measure),))


def _loc_main(names: Names, seed: int) -> Value:
    """Compute a cell of `loc-main`, `loc-iter` or `loc-batch`: ReDO, and ContraCAM with a field changed."""
    data, method = names["Data set"], names.get("Method", "")
    if method == "ReDO":
        return _scored(REDO[data], SEGMENTED_IMAGES[data])
    changed: dict[str, object] = {"remove_negative_signals": False} if "w/o" in method else {}
    if "Iteration" in names:
        changed["num_iterations"] = int(names["Iteration"])
    # 64 is the default and is left out, so that these masks are the same as in the other tables.
    size = int(names.get("Batch size", 64))
    masks = contracam(data, seed, group_size=None if size == 64 else size, **changed)
    return _scored(masks, SEGMENTED_IMAGES[data])


def _loc_cam(names: Names, seed: int) -> Value:
    """Compute a cell of `loc-cam`: each network is trained on the data set that it is measured on."""
    data = names["Data set"]
    images = SEGMENTED_IMAGES[data]
    if names["Training"] == "MoCov2":
        return _scored(contracam(data, seed), images)
    supervised = training(f"supervised_resnet18_{_NAMES['data'][data]}", seed=seed)
    localizer: dict[str, object] = {"name": "classifier_cam", "expansion": 2, "classifier": supervised}
    if "ReLU on α" in names["Inference"]:
        localizer["remove_negative_signals"] = True
    chosen = options(localizer=localizer, crf=True, mask_threshold=0.5)
    return _scored(nodes.localize(images, supervised, chosen), images)


def _loc_cam_full(names: Names, seed: int) -> Value:
    """Compute a cell of `loc-cam-full` or `loc-cam-transfer`, which has those of its rows that its notes name."""
    data, model = names["Data set"], names.get("Model") or names["Training"]
    doubled = names.get("Res×2", "✓" if model == "MoCov2" else "-")
    expansion = 2 if doubled == "✓" else 1
    if (names.get("Method") or names["Inference"]).startswith("ContraCAM"):
        return _boxes(imagenet_contracam(data, expansion), data)
    return _boxes(imagenet_classifier_cam(data, model, expansion), data)


def imagenet_classifier_cam(data: str, model: str, expansion: int) -> Planned:
    """Return the classifier CAM of a network trained on ImageNet, without CRF (appendix B.1)."""
    supervised = model == "Supervised"
    classifier = SUPERVISED_IMAGENET if supervised else _IMAGENET_CLASSIFIER
    localizer = {"name": "classifier_cam", "expansion": expansion, "classifier": classifier}
    network = SUPERVISED_IMAGENET if supervised else MOCO_IMAGENET
    return nodes.localize(BOXED[data], network, options(localizer=localizer, crf=False))


def imagenet_contracam(data: str, expansion: int = 2) -> Planned:
    """Return ContraCAM by the published MoCo v2, with one iteration and without CRF (appendix B.1)."""
    localizer = {"name": "contracam", "num_iterations": 1, "expansion": expansion}
    return nodes.localize(BOXED[data], MOCO_IMAGENET, options(localizer=localizer, crf=False))


def saliency_masks(method: str, data: str) -> Planned:
    """Return a method of `loc-saliency` by the published MoCo v2; ContraCAM is the row Res×2 of `loc-cam-full`."""
    if method.startswith("ContraCAM"):
        return imagenet_contracam(data)
    localizer = {"name": load_table("loc-saliency").localizers[method], "num_gradients": 10}
    return nodes.localize(BOXED[data], MOCO_IMAGENET, options(localizer=localizer, crf=False))


def _loc_saliency(names: Names, seed: int) -> Value:
    return _boxes(saliency_masks(names["Method"], names["Data set"]), names["Data set"])


def _boxes(masks: Planned, data: str) -> Value:
    """Return MaxBoxAccV2 of soft masks; on OpenImages PxAP, as the official tool does."""
    measure = "px_ap" if data == "OpenImages" else "max_box_acc_v2"
    return _scored(masks, BOXED[data], measure)


def classified(network: Node, name: str) -> Planned:
    """Return the linear evaluation on a data set, by its name in the tables."""
    test, sizes = _CLASSIFIED[name], _NAMES["holdout_sizes"]
    holdout = {"holdout_size": sizes[name]} if name in sizes else {}
    return nodes.linear(network, Images(test.name, "train"), {"test": test}, **holdout)


def by_protocol(label: str, values: Iterable[Planned], protocol: Protocol) -> dict[Planned, Planned]:
    """Return the stages of a table or figure under a protocol, by the stages under that of the paper.

    Under the protocol `official`, each linear evaluation that they are or need has the published code's objective and
    optimiser and is not fitted again. The data set's validation part chooses its penalty if the code uses one.

    Raises:
        InputError: The protocol changes none of them.
    """
    if protocol == "paper":
        return {value: value for value in values}
    found = {value: nodes.replaced(value, _official) for value in dict.fromkeys(values)}
    if all(old == new for old, new in found.items()):
        problem = f"changes nothing in {label}, which has no linear evaluation"
        raise InputError("protocol", protocol, problem, "Leave it out.")
    return found


def _official(node: Published | Planned) -> Node:
    if isinstance(node, Published) or node.kind != "linear":
        return node
    fields = options(node.fields, compat="official")
    train = node.fields["train"]
    if train.name in _NAMES["validation_parts"]:
        assert not fields.keys() & {"holdout_size", "holdout_fraction"}, "two ways to choose the penalty"
        fields = options(fields, validation=Images(train.name, _NAMES["validation_parts"][train.name]))
    return replace(node, fields=fields, description=f"{node.description}, official protocol")


def _classified_accuracy(names: Names, seed: int) -> Value:
    return Value(classified(network_of(names, seed), names["Test data set"]), (("accuracies", "test"),))


def _class_accuracy(names: Names, seed: int) -> Value:
    """Compute a cell of `multi-class-wise`: CIFAR-10 by class."""
    path = ("class_accuracies", "test", names["Class"].lower())
    return Value(classified(network_of(names, seed), "CIFAR10"), (path,))


def class_distance(crop: str, seed: int = 0) -> Planned:
    """Return the distance of giraffes and zebras among the objects of COCO's validation images."""
    fields = options(checkpoint=network_of({"Crop": crop}, seed), **_BIASED)
    return Planned("class_distance", fields, f"distance of {' and '.join(BIASED_CLASSES)} {{}}")


def _class_distance(names: Names, seed: int) -> Value:
    """Compute a cell of `multi-bias`: the distance of features as they are or, in added columns, of unit length."""
    crop, _, scale = names["Crop"].partition(", ")
    return Value(class_distance(crop, seed), (("distance_normalised" if scale else "distance",),))


def kept(crop: str, epoch: int, seed: int = 0) -> Kept:
    """Return MoCo v2's ResNet-50 on COCO after some epochs; `crop` is a row of `multi-bias-epoch`."""
    network = network_of({"Crop": "Baseline" if crop == "MoCov2" else crop}, seed)
    assert isinstance(network, Planned)
    return Kept(network, epoch)


def _few_shot_error(names: Names, seed: int) -> Value:
    """Compute a cell of `multi-bias-epoch`: the mean of five draws."""
    fields = options(checkpoint=kept(names["Model"], int(names["Epoch"]), seed), **_BIASED)
    description = f"few-shot {' and '.join(BIASED_CLASSES)} {{}}"
    return Value(Planned("few_shot", fields, description), (("error", "mean"),))


def _linear_on_in9(network: Node, name: str, parts: Iterable[str]) -> Planned:
    tests = {part: Images(name, part) for part in parts}
    return nodes.linear(network, TRAINING_IMAGES["in9"], tests, holdout_fraction=HOLDOUT_FRACTION)


def challenge(network: Node) -> Planned:
    """Return the linear evaluation on ImageNet-9, measured on every variant of the Backgrounds Challenge."""
    return _linear_on_in9(network, "Backgrounds Challenge", CHALLENGE_VARIANTS)


def _challenge_accuracy(names: Names, seed: int) -> Value:
    variant = names.get("Test data set", names.get("Dataset", "")).lower().replace("-", "_")
    return Value(challenge(network_of(names, seed)), (("accuracies", variant),))


SHIFTED: dict[str, Sequence[str]] = {
    **_NAMES["shifted_parts"],
    "ImageNet-C-9": [f"{name}-{severity}" for name in CORRUPTIONS.values() for severity in SEVERITIES],
}
"""Test parts of ImageNet-9 and of the shifted sets. A test compares SI-Score's factors with the data set."""


def _shifted_accuracy(names: Names, seed: int) -> Value:
    """Return the accuracy on a shifted set or on ImageNet-9's own validation images.

    The parts of SI-Score are not equally large. Its accuracy is that of all pictures together. In an added column
    `SET: PART` it is that of one part, or the mean of the parts' accuracies. The corruptions and severities of
    ImageNet-C have equally many pictures, and count the same. A table of corruptions has the mean over five severities.
    """
    name, _, chosen = names.get("Test data set", "ImageNet-C-9").partition(": ")
    parts = SHIFTED[name]
    node = _linear_on_in9(network_of(names, seed), name, parts)
    if "Corruption" in names:
        parts = [f"{CORRUPTIONS[names['Corruption']]}-{severity}" for severity in SEVERITIES]
    elif chosen in parts:
        parts = [chosen]
    is_pooled = not chosen and len(parts) > 1 and name in _NAMES["shifted_parts"]
    weights = tuple(("coverage", part, "num_samples") for part in parts if is_pooled)
    return Value(node, tuple(("accuracies", part) for part in parts), weights)


def _average_precision(names: Names, seed: int) -> Value:
    network = network_of(names, seed)
    fields = options(checkpoint=network, data=TRAINING_IMAGES["coco"], test=COCO_VAL)
    node = Planned("detection", fields, "detection {}", "detection_coco")
    return Value(node, (("box_ap" if names["Task"] == "COCO Detection" else "mask_ap",),))


def _resnet18_accuracy(names: Names, seed: int) -> Value:
    return _classified_accuracy({**names, "Network": "ResNet-18"}, seed)


_CELLS: dict[str, Callable[[Names, int], Value]] = {
    **dict.fromkeys(("loc-main", "loc-iter", "loc-batch"), _loc_main),
    "loc-cam": _loc_cam,
    **dict.fromkeys(("loc-cam-transfer", "loc-cam-full"), _loc_cam_full),
    "loc-saliency": _loc_saliency,
    **dict.fromkeys(("multi-main", "multi-supervised-lineval"), _classified_accuracy),
    **dict.fromkeys(("multi-imagenet", "multi-second"), _resnet18_accuracy),
    "multi-class-wise": _class_accuracy,
    **dict.fromkeys(("multi-det", "multi-supervised-det"), _average_precision),
    "multi-bias": _class_distance,
    "multi-bias-epoch": _few_shot_error,
    **dict.fromkeys(("bg-main", "bg-soft-hard", "bg-probability", "bg-more-bg"), _challenge_accuracy),
    **dict.fromkeys(
        ("multi-shift", "bg-domain", "bg-more-dist", "bg-imagenetc", "bg-more-datasets"), _shifted_accuracy
    ),
}
"""Functions that compute the tables' cells."""


@dataclass(frozen=True)
class TablePlan:
    """Hold the stages behind a table.

    Attributes:
        table: The table, with the paper's numbers.
        seeds: Seeds of the trainings behind each number.
        cells: One value per seed, by row and column, added ones included; no entry for a dash in the paper.
        protocol: How linear evaluations are done.
    """

    table: Table
    seeds: tuple[int, ...]
    cells: dict[Place, tuple[Value, ...]]
    protocol: Protocol = "paper"

    def nodes(self) -> list[Node]:
        """Return all stages, each once and after the stages that it needs."""
        return nodes.ordered(value.node for values in self.cells.values() for value in values)


def plan_table(label: str, *, num_seeds: int | None = None, protocol: Protocol = "paper") -> TablePlan:
    """Plan a table.

    Args:
        label: One of `TABLE_LABELS`.
        num_seeds: Trainings per number, with seeds from 0; by default as many as in the paper.
        protocol: How linear evaluations are done.

    Raises:
        InputError: The paper has no such table, `num_seeds` is below 1, or the table has no linear evaluation that
            `official` would change.
    """
    table = load_table(label)
    if num_seeds is not None and num_seeds < 1:
        raise InputError("seeds", num_seeds, "leaves no training", "Give the number of trainings, 1 or more.")
    seeds = tuple(range(num_seeds or table.num_trials))
    cells: dict[Place, tuple[Value, ...]] = {}
    for (row, column), printed in table.all_cells().items():
        if printed is not None or table.is_added((row, column)):
            names = dict(zip((*table.row_headers, *table.column_headers), (*row, *column), strict=True))
            cells[row, column] = tuple(_CELLS[label](names, seed) for seed in seeds)
    stages = by_protocol(label, (value.node for values in cells.values() for value in values), protocol)
    cells = {
        place: tuple(replace(value, node=stages[value.node]) for value in values) for place, values in cells.items()
    }
    return TablePlan(table, seeds, cells, protocol)
