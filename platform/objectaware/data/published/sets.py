"""The list of published data sets."""

from __future__ import annotations

from objectaware.data.published.entry import PublishedSet
from objectaware.data.published.imagenet_sets import (
    BACKGROUNDS_CHALLENGE,
    CORRUPTED,
    IMAGENET,
    IMAGENET_9,
    NUM_IN_370_CLASSES,
    OBJECTNET,
    RENDITIONS,
    SI_SCORE,
    SKETCH,
    STYLIZED,
    superclasses_of,
)
from objectaware.data.published.object_sets import (
    CIFAR_10,
    CIFAR_100,
    COCO,
    COCO_CROP,
    CUB,
    FLOWERS,
    FOOD_101,
    OPENIMAGES,
    PETS,
    VOC,
)

PUBLISHED_SETS: tuple[PublishedSet, ...] = (
    COCO,
    COCO_CROP,
    IMAGENET,
    IMAGENET_9,
    BACKGROUNDS_CHALLENGE,
    CUB,
    FLOWERS,
    VOC,
    OPENIMAGES,
    CIFAR_10,
    CIFAR_100,
    FOOD_101,
    PETS,
    SKETCH,
    superclasses_of(SKETCH),
    STYLIZED,
    superclasses_of(STYLIZED, num_images=NUM_IN_370_CLASSES),
    RENDITIONS,
    superclasses_of(RENDITIONS, "99 of its 200 classes are among the 370"),
    CORRUPTED,
    superclasses_of(CORRUPTED, num_images=NUM_IN_370_CLASSES),
    OBJECTNET,
    superclasses_of(
        OBJECTNET,
        "by its own mappings one class of ObjectNet, Bicycle (ImageNet's 444 and 671), lies in the nine superclasses; "
        "the paper does not say which classes it took",
    ),
    SI_SCORE,
    superclasses_of(SI_SCORE, "its classes cover four of the nine: bird, wheeled vehicle, carnivore, instrument"),
)
"""All of them, in the order in which they are listed."""
