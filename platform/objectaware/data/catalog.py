"""Opening data sets by the layout they lie in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from objectaware.data.backgrounds_challenge import load_variant
from objectaware.data.coco import load_coco
from objectaware.data.crops import CroppedObjects
from objectaware.data.folder import ImageFolder
from objectaware.data.layouts import LAYOUTS, Layout, LayoutName, layout_named
from objectaware.data.shards import PackedImages
from objectaware.data.subset import restrict
from objectaware.errors import InputError

OpenedImages = ImageFolder | CroppedObjects | PackedImages


@dataclass(frozen=True)
class Place:
    """Which images of a folder are meant. What the layout does not have is empty.

    Attributes:
        root: The folder, or the address of a pack.
        variant: One of the layout's variants.
        split: One of the layout's splits.
        metadata: Folder or file of labels and boxes that lie apart.
        shuffle_window: Shards that training mixes, for the layout `shards`.
    """

    root: str
    variant: str = ""
    split: str = ""
    metadata: str = ""
    shuffle_window: int = 1


_OPEN: Mapping[LayoutName, Callable[[Place], OpenedImages]] = {
    "folder": lambda place: ImageFolder.scan(place.root),
    "class-folders": lambda place: ImageFolder.from_classes(place.root),
    "backgrounds-challenge": lambda place: load_variant(place.root, place.variant, place.split),
    "coco": lambda place: load_coco(place.root, place.split).images,
    "coco-crop": lambda place: CroppedObjects(load_coco(place.root, place.split)),
    "shards": lambda place: PackedImages.open(place.root, window=place.shuffle_window),
}


def open_images(
    root: str | Path,
    layout: str,
    *,
    variant: str | None = None,
    split: str | None = None,
    subset: str | None = None,
    classes: str | None = None,
    metadata: str | None = None,
    shuffle_window: int = 1,
) -> OpenedImages:
    """Opens a set of images.

    Args:
        root: The folder.
        layout: Name of one of `LAYOUTS`, which says which of the other arguments it takes.
        variant: One of its variants; its default one where none is given.
        split: One of its splits.
        subset: Path or URI of a list of the images that count; all do where none is given.
        classes: `imagenet-9` makes labels the nine superclasses and leaves images of other classes out.
        metadata: Folder or file of labels and boxes that lie apart.
        shuffle_window: Shards that training mixes, for the layout `shards`.

    Raises:
        InputError: Something is missing or malformed, or the layout is not known.
    """
    known = layout_named(layout)
    assert bool(split) == bool(known.splits), f"splits of the layout {layout} are {known.splits}, not {split}"
    place = Place(str(root), variant or known.default_variant or "", split or "", metadata or "", shuffle_window)
    images = _OPEN[known.name](place)
    if subset is not None:
        assert isinstance(images, ImageFolder), f"the images of the layout {layout} are no files"
        images = restrict(images, subset)
    assert classes is None, f"the layout {layout} has no superclasses"
    return images


@dataclass(frozen=True)
class FoundImages:
    """A set of images that a folder holds in one layout, or why it does not.

    Attributes:
        layout: Name of the layout.
        split: One of its splits, or None where it has none.
        variant: One of its variants, or None where it has none.
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
    Layouts whose labels lie apart are not tried.

    Raises:
        InputError: There is no such folder.
    """
    if not Path(root).is_dir():
        raise InputError("root", root, "is not an existing folder", "Give a folder that holds images.")
    for layout in LAYOUTS:
        if layout.has_metadata:
            continue
        tried = [
            _try(root, layout, split, variant)
            for variant in layout.variants or (None,)
            for split in layout.splits or (None,)
        ]
        yield from [one for one in tried if not one.problem] or tried[:1]


def _try(root: str | Path, layout: Layout, split: str | None, variant: str | None) -> FoundImages:
    try:
        images = open_images(root, layout.name, variant=variant, split=split)
    except InputError as error:
        return FoundImages(layout.name, split, variant, 0, str(error))
    return FoundImages(layout.name, split, variant, len(images))
