"""The plan of each figure: the stages and images that it is drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from objectaware.errors import InputError
from objectaware.paper import Figure, load_figures, load_table
from objectaware.paper.nodes import Images, ImagesOfClass, Node, Stage, localize, ordered, score
from objectaware.paper.plan import (
    BIASED_CLASSES,
    COCO_VAL,
    CROP,
    MIXUP,
    SEGMENTED_IMAGES,
    TRAINING_IMAGES,
    challenge,
    class_distance,
    classified,
    contracam,
    imagenet_classifier_cam,
    imagenet_contracam,
    kept,
    network_of,
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
    stages: dict[str, Stage]
    images: dict[str, Images]

    def nodes(self) -> list[Node]:
        """Return all stages, each once and after the stages that it needs."""
        return ordered(self.stages.values())


@cache
def _parts() -> dict[str, dict[str, Node | Images]]:
    """Return the stages of each figure, and the images that it shows unchanged, by their names in the drawing."""
    coco_boxes = localize(COCO_VAL, training("moco_resnet50_coco"), CROP)
    steps = {"localizer": {"num_iterations": 3}, "execution": {"record_iterations": True}}
    challenge_images = {variant: Images("Backgrounds Challenge", variant) for variant in VARIANTS}
    shifted = ("ImageNet-Sketch", "Stylized-ImageNet", "ImageNet-R")
    saliencies = [row.name[0] for row in load_table("loc-saliency").rows]
    return {
        "intro": {
            **{f"{crop} {epoch}": classified(kept(crop, epoch), "Flowers") for crop in CROPS for epoch in EPOCHS},
            "classifier": challenge(training("moco_resnet18_in9")),
            "crops": COCO_VAL,
            "original": challenge_images["original"],
            "mixed_rand": challenge_images["mixed_rand"],
        },
        "method-iconcam": {"ContraCAM": localize(COCO_VAL, training("moco_resnet18_coco"), merged(CROP, steps))},
        "method-bg": {"masks": localize(TRAINING_IMAGES["in9"], training("moco_resnet18_in9"), MIXUP)},
        "loc-cam": {name: contracam(name) for name in SEGMENTED_IMAGES},
        "bg-challenge": {**challenge_images},
        "dist-shifts": {
            **{name: Images(f"{name}-9", "test") for name in shifted},
            "ImageNet-C": Images("ImageNet-C-9", "gaussian_noise-3"),
        },
        "loc-neg": {
            "ContraCAM w/o NSR": contracam("COCO", remove_negative_signals=False),
            "ContraCAM (ours)": contracam("COCO"),
        },
        "batch-giraffe": {
            "Giraffe-only batch": contracam("COCO", negatives=ImagesOfClass(BIASED_CLASSES[0], COCO_VAL)),
            "Random batch": contracam("COCO"),
        },
        "loc-clfcon": {
            "Classifier CAM": imagenet_classifier_cam("CUB", "Supervised", expansion=1),
            "ContraCAM (ours)": imagenet_contracam("CUB"),
        },
        "loc-saliency": {method: saliency_masks(method, "ImageNet") for method in saliencies},
        "hard-loss": {crop: network_of({"Crop": crop}) for crop in ("Baseline", "OA-Crop (CAM)", "OA-Crop (GT)")},
        "hard-hist": {"boxes": score(coco_boxes, COCO_VAL)},
        "hard-box": {"boxes": coco_boxes},
        "multi-bias": {crop: class_distance(crop) for crop in ("Baseline", "OA-Crop (CAM)")},
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
    parts = _parts()[label].items()
    stages = {name: part for name, part in parts if isinstance(part, Stage)}
    return FigurePlan(figures[label], stages, {name: part for name, part in parts if isinstance(part, Images)})
