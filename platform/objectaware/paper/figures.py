"""The plan of each figure: the stages and images that it is drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from objectaware.errors import InputError
from objectaware.paper import Figure, load_figures, load_table, plan
from objectaware.paper.nodes import Images, ImagesOfClass, Node, Planned, localize, ordered, score
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
        protocol: How linear evaluations are done.
    """

    figure: Figure
    stages: dict[str, Planned]
    images: dict[str, Images]
    protocol: plan.Protocol = "paper"

    def nodes(self) -> list[Node]:
        """Return all stages, each once and after the stages that it needs."""
        return ordered(self.stages.values())


@cache
def _parts() -> dict[str, dict[str, Node | Images]]:
    """Return the stages of each figure, and the images that it shows unchanged, by their names in the drawing."""
    coco_boxes = localize(plan.COCO_VAL, plan.training("moco_resnet50_coco"), plan.CROP)
    steps = {"localizer": {"num_iterations": 3}, "execution": {"record_iterations": True}}
    challenge_images = {variant: Images("Backgrounds Challenge", variant) for variant in VARIANTS}
    shifted = ("ImageNet-Sketch", "Stylized-ImageNet", "ImageNet-R")
    saliencies = [row.name[0] for row in load_table("loc-saliency").rows]
    return {
        "intro": {
            **{
                f"{crop} {epoch}": plan.classified(plan.kept(crop, epoch), "Flowers")
                for crop in CROPS
                for epoch in EPOCHS
            },
            "classifier": plan.challenge(plan.training("moco_resnet18_in9")),
            "crops": plan.COCO_VAL,
            "original": challenge_images["original"],
            "mixed_rand": challenge_images["mixed_rand"],
        },
        "method-iconcam": {
            "ContraCAM": localize(plan.COCO_VAL, plan.training("moco_resnet18_coco"), merged(plan.CROP, steps))
        },
        "method-bg": {"masks": localize(plan.TRAINING_IMAGES["in9"], plan.training("moco_resnet18_in9"), plan.MIXUP)},
        "loc-cam": {name: plan.contracam(name) for name in plan.SEGMENTED_IMAGES},
        "bg-challenge": {**challenge_images},
        "dist-shifts": {
            **{name: Images(f"{name}-9", "test") for name in shifted},
            "ImageNet-C": Images("ImageNet-C-9", "gaussian_noise-3"),
        },
        "loc-neg": {
            "ContraCAM w/o NSR": plan.contracam("COCO", remove_negative_signals=False),
            "ContraCAM (ours)": plan.contracam("COCO"),
        },
        "batch-giraffe": {
            "Giraffe-only batch": plan.contracam(
                "COCO", negatives=ImagesOfClass(plan.BIASED_CLASSES[0], plan.COCO_VAL)
            ),
            "Random batch": plan.contracam("COCO"),
        },
        "loc-clfcon": {
            "Classifier CAM": plan.imagenet_classifier_cam("CUB", "Supervised", expansion=1),
            "ContraCAM (ours)": plan.imagenet_contracam("CUB"),
        },
        "loc-saliency": {method: plan.saliency_masks(method, "ImageNet") for method in saliencies},
        "hard-loss": {crop: plan.network_of({"Crop": crop}) for crop in ("Baseline", "OA-Crop (CAM)", "OA-Crop (GT)")},
        "hard-hist": {"boxes": score(coco_boxes, plan.COCO_VAL)},
        "hard-box": {"boxes": coco_boxes},
        "multi-bias": {crop: plan.class_distance(crop) for crop in ("Baseline", "OA-Crop (CAM)")},
    }


def plan_figure(label: str, *, protocol: plan.Protocol = "paper") -> FigurePlan:
    """Plan a figure.

    Args:
        label: Its label, without `figure:`.
        protocol: How linear evaluations are done.

    Raises:
        InputError: The paper has no such figure, or it has no linear evaluation that `official` would change.
    """
    figures = {figure.label: figure for figure in load_figures()}
    if label not in figures:
        remedy = "objectaware reproduce list shows them all."
        raise InputError("figure", label, "is not a figure of the paper", remedy)
    parts = _parts()[label].items()
    stages = {name: part for name, part in parts if isinstance(part, Planned)}
    changed = plan.by_protocol(f"figure:{label}", stages.values(), protocol)
    images = {name: part for name, part in parts if isinstance(part, Images)}
    return FigurePlan(figures[label], {name: changed[part] for name, part in stages.items()}, images, protocol)
