"""What layouts there are: the one table behind `DataConfig`, `open_images`, `data list` and the documentation.

A layout that joins gets a name in `LayoutName`, a row in `LAYOUTS`, and in `data.catalog` the function that opens it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from objectaware.data.backgrounds_challenge import VARIANTS
from objectaware.errors import InputError

LayoutName = Literal["folder", "class-folders", "backgrounds-challenge", "coco", "coco-crop", "shards"]


@dataclass(frozen=True)
class Layout:
    """One way in which images lie in a folder (docs/data.md).

    Attributes:
        name: As in `data.layout` of a recipe.
        content: What lies in the folder.
        labels: What the labels are; empty where there are none.
        masks: What the true masks are; empty where there are none.
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
