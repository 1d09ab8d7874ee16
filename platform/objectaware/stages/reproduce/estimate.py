"""What the stages of a plan will take, before they have run."""

from __future__ import annotations

from dataclasses import dataclass

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
from objectaware.stages.reproduce.workshop import Workshop

# A step of training is two views forwards and backwards, and both forwards through the target network.
_FORWARDS_PER_TRAINED_IMAGE = 8
_FORWARDS_PER_GRADIENT = 3
# pydensecrf on a picture of 224 pixels, one process (official-implementation §2).
_CRF_SECONDS = 0.048
# A soft mask of 224 × 224 bytes, compressed, with its mask and boxes.
_BYTES_PER_MASK = 20_000
# Mask R-CNN R50-C4 for 180,000 iterations on 8 V100: 0.58 s an iteration in detectron2's model zoo.
_DETECTION_GPU_HOURS = 180_000 * 0.58 * 8 / 3600


@dataclass(frozen=True)
class Throughput:
    """Images that a GPU trains on in a second.

    The defaults are what the paper says of a GeForce RTX 2080 Ti: 800 epochs of COCO's 118,287 images in 1.5 days on 4
    (ResNet-18) and in 3 days on 8 (ResNet-50).

    Attributes:
        resnet18: With a ResNet-18.
        resnet50: With a ResNet-50.
        source: Where the numbers are from.
    """

    resnet18: float = 183
    resnet50: float = 46
    source: str = "a GeForce RTX 2080 Ti by the paper's days"

    def __post_init__(self) -> None:
        """Refuses what nothing can be divided by."""
        for rate in (self.resnet18, self.resnet50):
            if rate <= 0:
                raise InputError("images-per-second", rate, "is no rate", "Give two positive numbers.")

    def of(self, network: Network | None) -> float:
        """Images a second of a network; of others' networks, which are ResNet-50."""
        training = network.training if isinstance(network, Kept) else network
        is_small = isinstance(training, Pretrain) and "resnet18" in training.recipe
        return self.resnet18 if is_small else self.resnet50


@dataclass(frozen=True)
class Cost:
    """What a stage takes.

    Attributes:
        gpu_hours: On a GPU of the stated throughput.
        cpu_hours: On a core, beside it: the dense CRF.
        disk_bytes: Of its mask store.
        is_known: Whether the number of its images is; else the cost is not counted.
    """

    gpu_hours: float = 0.0
    cpu_hours: float = 0.0
    disk_bytes: float = 0.0
    is_known: bool = True


def cost_of(workshop: Workshop, node: Node, throughput: Throughput) -> Cost:
    """Estimates a stage from its images, its epochs or iterations, and a GPU's throughput."""
    numbers = [workshop.scale.num_images(images) for images in images_of(node)]
    if None in numbers:
        return Cost(is_known=False)
    count = sum(number for number in numbers if number is not None)
    match node:
        case Pretrain():
            epochs = workshop.pretrain_config(node, "masks").num_epochs
            return Cost(gpu_hours=count * epochs / throughput.of(node) / 3600)
        case Localize():
            forwards = count * _forwards(node)
            return Cost(
                gpu_hours=forwards / (throughput.of(node.network) * _FORWARDS_PER_TRAINED_IMAGE) / 3600,
                cpu_hours=count * _CRF_SECONDS / 3600 if dict(node.options).get("crf", True) else 0.0,
                disk_bytes=count * _BYTES_PER_MASK,
            )
        case Linear() | FewShot() | ClassDistance():
            return Cost(gpu_hours=count / (throughput.of(node.network) * _FORWARDS_PER_TRAINED_IMAGE) / 3600)
        case Detection():
            return Cost(gpu_hours=_DETECTION_GPU_HOURS if isinstance(node.network, Pretrain) else 0.0)
        case MaskScore() | _:
            return Cost()


def _forwards(node: Localize) -> float:
    """Passes through the network that an image's map takes."""
    chosen = dict(node.options)
    if node.network is None:
        return 0
    if chosen.get("localizer") in ("integrated_gradients", "smoothgrad"):
        return _FORWARDS_PER_GRADIENT * int(str(chosen["num_gradients"]))
    if chosen.get("localizer") == "classifier_cam":
        return 1
    return int(str(chosen["num_iterations"]))
