"""The plan of each figure: the stages and images that it is drawn from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from objectaware.errors import InputError
from objectaware.paper import Figure, load_figures, load_table
from objectaware.paper.nodes import Images, Localize, MaskScore, Network, Node, options, ordered
from objectaware.paper.plan import (
    BOXED,
    COCO_VAL,
    CROP,
    MIXUP,
    SEGMENTED_IMAGES,
    SUPERVISED_IMAGENET,
    TRAINING_IMAGES,
    challenge,
    class_distance,
    classified,
    coco_network,
    contracam,
    imagenet_contracam,
    in9_network,
    kept,
    saliency_masks,
    training,
)
from objectaware.recipes import merged

EPOCHS = tuple(range(100, 900, 100))
"""Epochs of the checkpoints on the curves."""
CROPS = ("MoCov2", "+OA-Crop")
VARIANTS = ("original", "mixed_same", "mixed_rand", "mixed_next", "only_fg", "no_fg", "only_bg_b", "only_bg_t")
"""Variants of the Backgrounds Challenge in the figure's order; a test compares them with the data set."""


@dataclass(frozen=True)
class FigurePlan:
    """Hold the stages and images that a figure is drawn from.

    Attributes:
        figure: The figure.
        stages: Stages by their names in the drawing, in the order of the columns.
        images: Parts of data sets that are shown unchanged.
    """

    figure: Figure
    stages: dict[str, Node] = field(default_factory=dict)
    images: dict[str, Images] = field(default_factory=dict)

    def nodes(self) -> list[Node]:
        """Return all stages, each once and after the stages that it needs."""
        return ordered(self.stages.values())


Parts = tuple[dict[str, Node], dict[str, Images]]


def _intro() -> Parts:
    stages: dict[str, Node] = {
        f"{crop} {epoch}": classified(kept(crop, epoch), "Flowers") for crop in CROPS for epoch in EPOCHS
    }
    stages["classifier"] = challenge(in9_network("MoCov2", "Baseline", 0))
    shown = {"crops": COCO_VAL, "original": Images("Backgrounds Challenge", "original")}
    return stages, {**shown, "mixed_rand": Images("Backgrounds Challenge", "mixed_rand")}


def _method_iconcam() -> Parts:
    chosen = options(merged(CROP.fields(), {"localizer": {"num_iterations": 3}}))
    network = training("moco_resnet18_coco")
    return {"ContraCAM": Localize(COCO_VAL, network, chosen, record_iterations=True)}, {}


def _dist_shifts() -> Parts:
    names = ("ImageNet-Sketch", "Stylized-ImageNet", "ImageNet-R")
    shown = {name: Images(f"{name}-9", "test") for name in names}
    return {}, {**shown, "ImageNet-C": Images("ImageNet-C-9", "gaussian_noise-3")}


def _loc_neg() -> Parts:
    without = contracam("COCO", remove_negative_signals=False)
    return {"ContraCAM w/o NSR": without, "ContraCAM (ours)": contracam("COCO")}, {}


def _batch_giraffe() -> Parts:
    network = training("moco_resnet18_coco")
    giraffes = Localize(COCO_VAL, network, CROP, negatives="giraffe")
    return {"Giraffe-only batch": giraffes, "Random batch": Localize(COCO_VAL, network, CROP)}, {}


def _loc_clfcon() -> Parts:
    chosen = options(localizer={"name": "classifier_cam", "expansion": 1}, crf=False)
    supervised = Localize(BOXED["CUB"], SUPERVISED_IMAGENET, chosen, classifier=SUPERVISED_IMAGENET)
    return {"Classifier CAM": supervised, "ContraCAM (ours)": imagenet_contracam("CUB")}, {}


def _loc_saliency() -> Parts:
    methods = [row.name[0] for row in load_table("loc-saliency").rows]
    return {method: saliency_masks(method, "ImageNet") for method in methods}, {}


def _coco_boxes() -> Localize:
    return Localize(COCO_VAL, training("moco_resnet50_coco"), CROP)


def _coco_networks(*crops: str) -> dict[str, Network]:
    return {crop: coco_network("MoCov2", "ResNet-50", crop, 0) for crop in crops}


_PARTS: dict[str, Callable[[], Parts]] = {
    "intro": _intro,
    "method-iconcam": _method_iconcam,
    "method-bg": lambda: ({"masks": Localize(TRAINING_IMAGES["in9"], training("moco_resnet18_in9"), MIXUP)}, {}),
    "loc-cam": lambda: ({name: contracam(name) for name in SEGMENTED_IMAGES}, {}),
    "bg-challenge": lambda: ({}, {variant: Images("Backgrounds Challenge", variant) for variant in VARIANTS}),
    "dist-shifts": _dist_shifts,
    "loc-neg": _loc_neg,
    "batch-giraffe": _batch_giraffe,
    "loc-clfcon": _loc_clfcon,
    "loc-saliency": _loc_saliency,
    "hard-loss": lambda: ({**_coco_networks("Baseline", "OA-Crop (CAM)", "OA-Crop (GT)")}, {}),
    "hard-hist": lambda: ({"boxes": MaskScore(_coco_boxes(), COCO_VAL)}, {}),
    "hard-box": lambda: ({"boxes": _coco_boxes()}, {}),
    "multi-bias": lambda: (
        {crop: class_distance(network) for crop, network in _coco_networks("Baseline", "OA-Crop (CAM)").items()},
        {},
    ),
}


def plan_figure(label: str) -> FigurePlan:
    """Plan a figure.

    Args:
        label: Its label, without `figure:`.

    Raises:
        InputError: The paper has no such figure.
    """
    figures = {figure.label: figure for figure in load_figures()}
    if label not in figures:
        remedy = "objectaware reproduce list shows them all."
        raise InputError("figure", label, "is not a figure of the paper", remedy)
    return FigurePlan(figures[label], *_PARTS[label]())
