"""What layouts there are: the one table behind `DataConfig`, `open_images`, `data list` and the documentation.

A layout that joins gets a name in `LayoutName`, a row in `LAYOUTS`, and in `data.catalog` the function that opens it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from objectaware.data.backgrounds_challenge import VARIANTS
from objectaware.data.variants import CORRUPTED_VARIANTS, FACTORS
from objectaware.errors import InputError

LayoutName = Literal[
    "folder",
    "class-folders",
    "backgrounds-challenge",
    "coco",
    "coco-crop",
    "imagenet",
    "imagenet-sketch",
    "imagenet-r",
    "imagenet-c",
    "stylized-imagenet",
    "objectnet",
    "si-score",
    "cifar-10",
    "cifar-100",
    "food-101",
    "oxford-iiit-pets",
    "cub",
    "flowers102",
    "voc",
    "wsolevaluation",
    "shards",
]


@dataclass(frozen=True)
class Layout:
    """One way in which images lie in a folder (docs/data.md).

    Attributes:
        name: As in `data.layout` of a recipe.
        content: What lies in the folder.
        labels: What the labels are; empty where there are none.
        masks: What the true masks or boxes are; empty where there are none.
        splits: Values of `data.split`, one of which must be given; empty where the field has no meaning.
        variants: Values of `data.variant`; empty where the field has no meaning.
        default_variant: Variant where none is given; None where one must be.
        are_files: Whether each image is a file of the folder and shown whole, so that a list can name it and a pack
            can hold it.
        has_superclasses: Whether `data.classes: imagenet-9` has a meaning.
        has_metadata: Whether labels or boxes lie in a folder or file of their own, `data.metadata`.
    """

    name: LayoutName
    content: str
    labels: str = ""
    masks: str = ""
    splits: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    default_variant: str | None = None
    are_files: bool = True
    has_superclasses: bool = False
    has_metadata: bool = False


_TRAIN_VAL = ("train", "val")
_TRAIN_TEST = ("train", "test")
_IMAGENET_CLASS = "class of ImageNet"
_REDO = ("redo-train", "redo-val", "redo-test")
_VOC = ("train", "val", "trainval")

LAYOUTS = (
    Layout("folder", "photos at any depth"),
    Layout("class-folders", "one folder a class", "class"),
    Layout(
        "backgrounds-challenge",
        "<variant>/{train,val}/<class>/*.JPEG",
        "class",
        "fg_mask",
        splits=_TRAIN_VAL,
        variants=VARIANTS,
        default_variant="original",
    ),
    Layout(
        "coco",
        "{train,val}2017 and annotations/instances_{train,val}2017.json",
        masks="union of the instances",
        splits=_TRAIN_VAL,
    ),
    Layout("coco-crop", "the same folder; each object cut out", "category", splits=_TRAIN_VAL, are_files=False),
    Layout(
        "imagenet",
        "{train,val}/<wnid>/*.JPEG, or val flat beside its labels",
        _IMAGENET_CLASS,
        splits=_TRAIN_VAL,
        has_superclasses=True,
    ),
    Layout("imagenet-sketch", "sketch/<wnid>/*.JPEG", _IMAGENET_CLASS, has_superclasses=True),
    Layout("imagenet-r", "imagenet-r/<wnid>/*.jpg", _IMAGENET_CLASS, has_superclasses=True),
    Layout(
        "imagenet-c",
        "<corruption>/<severity>/<wnid>/*.JPEG, also below {noise,blur,weather,digital}",
        _IMAGENET_CLASS,
        variants=CORRUPTED_VARIANTS,
        has_superclasses=True,
    ),
    Layout("stylized-imagenet", "{train,val}/<wnid>/*", _IMAGENET_CLASS, splits=_TRAIN_VAL, has_superclasses=True),
    Layout(
        "objectnet",
        "objectnet-1.0/images/<class>/*.png and mappings/*.json; the border is cut off",
        "class",
        are_files=False,
        has_superclasses=True,
    ),
    Layout(
        "si-score",
        "object_{size,location,rotation}/<class>/*.jpg",
        _IMAGENET_CLASS,
        variants=FACTORS,
        has_superclasses=True,
    ),
    Layout(
        "cifar-10",
        "cifar-10-batches-py/{data_batch_1…5,test_batch,batches.meta}",
        "class",
        splits=_TRAIN_TEST,
        are_files=False,
    ),
    Layout("cifar-100", "cifar-100-python/{train,test,meta}", "fine class", splits=_TRAIN_TEST, are_files=False),
    Layout("food-101", "images/<class>/*.jpg and meta/{classes,train,test}.txt", "class", splits=_TRAIN_TEST),
    Layout("oxford-iiit-pets", "images/*.jpg and annotations/{trainval,test}.txt", "breed", splits=_TRAIN_TEST),
    Layout(
        "cub",
        "images.txt, images/<class>/*.jpg and segmentations/<class>/*.png of CUB-200-2011",
        "species",
        "segmentations and boxes",
        splits=("train", "test", *_REDO),
    ),
    Layout(
        "flowers102",
        "jpg/image_*.jpg, setid.mat, imagelabels.mat and segmim/segmim_*.jpg of Flowers 102",
        "species",
        "segmim",
        splits=("train", "val", "test", *_REDO),
    ),
    Layout(
        "voc",
        "JPEGImages, Annotations, ImageSets and SegmentationClass of VOC 2012",
        masks="boxes; of the parts segmentation-… masks, too",
        splits=(*_VOC, *(f"segmentation-{part}" for part in _VOC)),
    ),
    Layout(
        "wsolevaluation",
        "images of CUB, ImageNet or OpenImages, with wsolevaluation's metadata in another folder",
        "class",
        "boxes; of OpenImages masks",
        splits=("train", "val", "test"),
        has_metadata=True,
    ),
    Layout(
        "shards",
        "shard-*.parquet and pack.json, from `objectaware data pack`",
        "as packed",
        "as packed",
        are_files=False,
    ),
)


def layout_named(name: str) -> Layout:
    """Finds a layout.

    Raises:
        InputError: There is none of that name.
    """
    for layout in LAYOUTS:
        if layout.name == name:
            return layout
    raise InputError("layout", name, "is not known", f"Use one of {', '.join(layout.name for layout in LAYOUTS)}.")
