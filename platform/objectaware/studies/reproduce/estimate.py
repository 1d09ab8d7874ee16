"""Estimates of the stages of a plan before they run, with measured rates or the paper's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from objectaware.config import LocalizeConfig, Localizer, MethodConfig
from objectaware.errors import InputError
from objectaware.paper.nodes import (
    ClassDistance,
    Detection,
    FewShot,
    Kept,
    Linear,
    Localize,
    MaskScore,
    Network,
    Node,
    Pretrain,
    images_of,
)
from objectaware.paper.plan import recipe_parts
from objectaware.planning.model import (
    Machine,
    Part,
    Resource,
    StageWork,
    feature_parts,
    localize_work,
    pretrain_work,
    soft_mask_work,
)
from objectaware.planning.rates import NetworkRates, Rates, TrainingRates, Work
from objectaware.studies.reproduce.workshop import Workshop

PAPER_RATES: Final = (183.0, 46.0)
"""Images per second on which a GeForce RTX 2080 Ti trains, from the paper's training times: 800 epochs of COCO's
118,287 images in 1.5 days on 4 GPUs (ResNet-18) and in 3 days on 8 (ResNet-50)."""

_PAPER_SOURCE = "a GeForce RTX 2080 Ti by the paper's days"
# A training step runs two views forwards and backwards, and both forwards through the target network.
_FORWARDS_PER_TRAINED_IMAGE = 8
# pydensecrf on a picture of 224 × 224 pixels, in one process (official-implementation §2).
_CRF_SECONDS = 0.048
# A compressed soft mask of 224 × 224 bytes, with its mask and boxes.
_BYTES_PER_MASK = 20_000
# Mask R-CNN R50-C4 for 180,000 iterations on 8 V100: 0.58 s per iteration in detectron2's model zoo.
_DETECTION_GPU_HOURS = 180_000 * 0.58 * 8 / 3600


def stated_rates(images_per_second: tuple[float, float] | None = None) -> Rates:
    """Return rates of a GPU for which only the training speed is known; all else is the paper's or counts as free.

    Args:
        images_per_second: Training speed with a ResNet-18 and with a ResNet-50. By default the paper's.

    Raises:
        InputError: A rate is zero or negative.
    """
    speeds = images_per_second or PAPER_RATES
    for speed in speeds:
        if speed <= 0:
            raise InputError("images-per-second", speed, "is no rate", "Give two positive numbers.")
    source = _PAPER_SOURCE if images_per_second is None else "as given"
    return Rates(
        source=f"at {speeds[0]:g} images/s (ResNet-18) and {speeds[1]:g} (ResNet-50) a GPU ({source})",
        device="cuda",
        num_cores=1,
        num_gpus=1,
        image_size=224,
        picture_bytes=1,
        crf=_CRF_SECONDS,
        networks=(_stated("resnet18", 512, speeds[0]), _stated("resnet50", 2048, speeds[1])),
        start_seconds={"pretrain": 0, "localize": 0, "linear": 0},
    )


def _stated(backbone: str, num_features: int, images_per_second: float) -> NetworkRates:
    step = TrainingRates(step=Work(gpu_seconds=1 / images_per_second))
    forward = Work(gpu_seconds=1 / images_per_second / _FORWARDS_PER_TRAINED_IMAGE)
    return NetworkRates(
        backbone=backbone,
        num_features=num_features,
        training=dict.fromkeys(MethodConfig.variants(), step),
        forward=forward,
        iteration=dict.fromkeys((1, 2, 4), forward),
    )


@dataclass(frozen=True)
class Cost:
    """The cost of a stage.

    Attributes:
        gpu_hours: Hours of work of GPUs.
        cpu_hours: Hours of work of cores, beside the GPUs or in their place.
        disk_bytes: Size of its mask store in bytes.
        hours: Elapsed hours on the machine that is planned for.
        bottleneck: The resource that it waits for there; None if it takes no time.
        is_known: Whether the number of its images is known. Otherwise the cost is not counted.
    """

    gpu_hours: float = 0.0
    cpu_hours: float = 0.0
    disk_bytes: float = 0.0
    hours: float = 0.0
    bottleneck: Resource | None = None
    is_known: bool = True


def cost_of(workshop: Workshop, node: Node, rates: Rates, machine: Machine) -> Cost:
    """Estimate a stage from its images, its epochs or iterations, and the rates.

    Fits of linear classifiers are left out, because the number of classes is known only when the labels are read.

    Raises:
        InputError: The rates lack a network, a method or an expansion.
    """
    numbers = [workshop.scale.num_images(images) for images in images_of(node)]
    if None in numbers:
        return Cost(is_known=False)
    work = _work(workshop, node, rates, sum(number for number in numbers if number is not None))
    if work is None:
        return Cost()
    total, time = work.total(), work.on(machine)
    return Cost(
        gpu_hours=total.gpu_seconds / 3600,
        cpu_hours=total.core_seconds / 3600,
        disk_bytes=numbers[0] * _BYTES_PER_MASK if isinstance(node, Localize) and numbers[0] is not None else 0.0,
        hours=time.seconds / 3600,
        bottleneck=time.bottleneck,
    )


def _work(workshop: Workshop, node: Node, rates: Rates, num_images: int) -> StageWork | None:
    """Return the work of a stage, or None if it is negligible."""
    match node:
        case Pretrain():
            config = workshop.pretrain_config(node, "masks")
            return pretrain_work(
                rates,
                backbone=_backbone(node),
                method=config.method.name,
                num_images=num_images,
                num_epochs=config.num_epochs,
                cache_mib=config.execution.cache_mib,
                checkpoint_interval=config.execution.checkpoint_interval,
            )
        case Localize():
            defaults = {name: LocalizeConfig.model_fields[name].default for name in ("crf", "group_size")}
            chosen = {**defaults, **node.options.fields()}
            return localize_work(
                rates,
                num_images=num_images,
                soft_mask=_soft_mask(node, rates),
                crf=bool(chosen["crf"]),
                group_size=int(str(chosen["group_size"])),
            )
        case Linear() | FewShot() | ClassDistance():
            parts = feature_parts(rates, backbone=_backbone(node.network), num_images=num_images)
            return StageWork("linear", rates.start_seconds["linear"], parts)
        case Detection() if isinstance(node.network, Pretrain):
            return StageWork("detection", 0.0, (Part(1, Work(gpu_seconds=3600 * _DETECTION_GPU_HOURS)),))
        case Detection() | MaskScore() | _:
            return None


def _backbone(network: Network | None) -> str:
    """Return a network's backbone. Networks of others are ResNet-50."""
    training = network.training if isinstance(network, Kept) else network
    return recipe_parts(training.recipe)[1] if isinstance(training, Pretrain) else "resnet50"


def _soft_mask(node: Localize, rates: Rates) -> Work:
    """Return the work for one image's soft mask."""
    fields = node.options.fields()["localizer"]
    if node.classifier is not None:
        fields["classifier"] = "classifier"
    localizer = Localizer.variants()[fields["name"]].model_validate(fields)
    return soft_mask_work(rates, backbone=_backbone(node.network), cost=localizer.cost)
