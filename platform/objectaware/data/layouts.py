"""What layouts there are, and which of them a folder holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from objectaware.data.backgrounds_challenge import VARIANTS
from objectaware.data.catalog import Split, open_images
from objectaware.errors import InputError

SPLITS: tuple[Split, ...] = ("train", "val")


@dataclass(frozen=True)
class Layout:
    """One way in which images lie in a folder (docs/data.md).

    Attributes:
        name: As in `data.layout` of a recipe.
        content: What lies in the folder.
        labels: What the labels are; empty where there are none.
        masks: What the true masks are; empty where there are none.
    """

    name: str
    content: str
    labels: str = ""
    masks: str = ""


LAYOUTS = (
    Layout("folder", "photos at any depth"),
    Layout("class-folders", "one folder a class", "class"),
    Layout("backgrounds-challenge", "<variant>/{train,val}/<class>/*.JPEG", "class", "fg_mask"),
    Layout("coco", "{train,val}2017 and annotations/instances_{train,val}2017.json", "", "union of the instances"),
    Layout("coco-crop", "the same folder; each object cut out", "category"),
    Layout("shards", "shard-*.parquet and pack.json, from `objectaware data pack`", "as packed", "as packed"),
)


@dataclass(frozen=True)
class FoundImages:
    """A set of images that a folder holds in one layout, or why it does not.

    Attributes:
        layout: Name of the layout.
        split: `train` or `val`, for the published layouts.
        variant: Variant of the Backgrounds Challenge.
        num_images: How many; 0 with a problem.
        problem: Why the folder does not have this layout; empty where it does.
    """

    layout: str
    split: str | None
    variant: str | None
    num_images: int
    problem: str = ""


def find_layouts(root: str | Path) -> Iterator[FoundImages]:
    """Tries every layout on a folder.

    Of a published layout, what is there of its splits and variants is given; where nothing is, one entry says why.

    Raises:
        InputError: There is no such folder.
    """
    if not Path(root).is_dir():
        raise InputError("root", root, "is not an existing folder", "Give a folder that holds images.")
    for layout in LAYOUTS:
        published = layout.name not in ("folder", "class-folders", "shards")
        splits: tuple[Split | None, ...] = SPLITS if published else (None,)
        variants = VARIANTS if layout.name == "backgrounds-challenge" else (None,)
        tried = [_try(root, layout.name, split, variant) for variant in variants for split in splits]
        yield from [one for one in tried if not one.problem] or tried[:1]


def _try(root: str | Path, layout: str, split: Split | None, variant: str | None) -> FoundImages:
    try:
        images = open_images(root, layout, variant=variant, split=split)
    except InputError as error:
        return FoundImages(layout, split, variant, 0, str(error))
    return FoundImages(layout, split, variant, len(images))
