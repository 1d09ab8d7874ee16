"""Opening data sets by the layout they lie in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from objectaware.data.annotations import require_some_file
from objectaware.data.backgrounds_challenge import load_variant
from objectaware.data.cifar import ArrayImages, load_cifar
from objectaware.data.coco import load_coco
from objectaware.data.crops import CroppedObjects
from objectaware.data.cub import load_cub
from objectaware.data.flowers102 import load_flowers102
from objectaware.data.folder import ImageFolder
from objectaware.data.imagenet import load_imagenet
from objectaware.data.imagenet_shifts import load_corrupted, load_renditions, load_sketch, load_stylized
from objectaware.data.layouts import LAYOUTS, Layout, LayoutName, layout_named
from objectaware.data.listed import load_food, load_pets
from objectaware.data.objectnet import BorderlessImages, load_objectnet, objectnet_superclasses
from objectaware.data.places import is_folder
from objectaware.data.published.imagenet9 import SUPERCLASSES, superclass_of_class
from objectaware.data.shards import PackedImages
from objectaware.data.si_score import load_si_score
from objectaware.data.subset import restrict
from objectaware.data.voc import load_voc
from objectaware.data.wsolevaluation import load_wsolevaluation
from objectaware.errors import InputError

OpenedImages = ImageFolder | CroppedObjects | BorderlessImages | ArrayImages | PackedImages


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


def _object_crops(place: Place) -> CroppedObjects:
    return CroppedObjects(load_coco(place.root, place.split, "shape", "category_index", "box", "area"))


_OPEN: Mapping[LayoutName, Callable[[Place], OpenedImages]] = {
    "folder": lambda place: ImageFolder.scan(place.root),
    "class-folders": lambda place: ImageFolder.from_classes(place.root),
    "backgrounds-challenge": lambda place: load_variant(place.root, place.variant, place.split),
    "coco": lambda place: load_coco(place.root, place.split).images,
    "coco-crop": lambda place: _object_crops(place),
    "imagenet": lambda place: load_imagenet(place.root, place.split),
    "imagenet-sketch": lambda place: load_sketch(place.root),
    "imagenet-r": lambda place: load_renditions(place.root),
    "imagenet-c": lambda place: load_corrupted(place.root, place.variant),
    "stylized-imagenet": lambda place: load_stylized(place.root, place.split),
    "objectnet": lambda place: load_objectnet(place.root),
    "si-score": lambda place: load_si_score(place.root, place.variant),
    "cifar-10": lambda place: load_cifar(place.root, 10, place.split),
    "cifar-100": lambda place: load_cifar(place.root, 100, place.split),
    "food-101": lambda place: load_food(place.root, place.split),
    "oxford-iiit-pets": lambda place: load_pets(place.root, place.split),
    "cub": lambda place: load_cub(place.root, place.split),
    "flowers102": lambda place: load_flowers102(place.root, place.split),
    "voc": lambda place: load_voc(place.root, place.split),
    "wsolevaluation": lambda place: load_wsolevaluation(place.root, place.metadata, place.split),
    "shards": lambda place: PackedImages.open(place.root, window=place.shuffle_window),
}


def require_root(root: str, layout: str) -> None:
    """Refuses at once a data set that is not there at all; `open_images` looks at the rest, which may take minutes.

    Args:
        root: The folder, or for `shards` an address.
        layout: As `open_images`.

    Raises:
        InputError: It is not there.
    """
    if layout == "shards":
        PackedImages.describe(root)
    elif not is_folder(root, field="data.root"):
        raise InputError("data.root", root, "is not an existing folder", "Give the folder of the images.")


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
    if isinstance(images, ImageFolder):
        require_some_file(images, named_by=Path(root), field="data.root")
    if subset is not None:
        assert isinstance(images, ImageFolder), f"the images of the layout {layout} are no files"
        images = restrict(images, subset)
    if classes is None:
        return images
    assert known.has_superclasses, f"the layout {layout} has no superclasses"
    assert isinstance(images, ImageFolder | BorderlessImages), type(images)
    own_table = known.name == "objectnet"
    return _by_superclass(images, objectnet_superclasses(place.root) if own_table else superclass_of_class())


def notice_of(images: OpenedImages) -> str:
    """Return what the user should know of a set's folder, as a line; empty where there is nothing to say."""
    return images.notice if isinstance(images, ImageFolder) else ""


def _by_superclass(
    images: ImageFolder | BorderlessImages, superclass_of_label: NDArray[np.int64]
) -> ImageFolder | BorderlessImages:
    """Labels images with the nine superclasses and leaves the others out."""
    assert images.labels is not None
    superclasses = superclass_of_label[images.labels]
    places = np.flatnonzero(superclasses >= 0)
    if not len(places):
        remedy = "Leave classes out, or give a folder that has some."
        raise InputError("classes", "imagenet-9", f"has none of its 370 classes in {images.root}", remedy)
    return images.select(places, superclasses[places], SUPERCLASSES)


@dataclass(frozen=True)
class FoundImages:
    """A set of images that a folder holds in one layout, or why it does not.

    Attributes:
        layout: Name of the layout.
        split: One of its splits, or None where it has none.
        variant: One of its variants, or None where it has none.
        num_images: How many; 0 with a problem.
        problem: Why the folder does not have this layout; empty where it does.
        notice: What the user should know of the images, as a line; empty where there is nothing to say.
    """

    layout: str
    split: str | None
    variant: str | None
    num_images: int
    problem: str = ""
    notice: str = ""


def find_layouts(root: str | Path) -> Iterator[FoundImages]:
    """Tries every layout on a folder.

    Of a published layout, what is there of its splits and variants is given; where nothing is, one entry says why.
    Layouts whose labels lie apart are not tried.

    Raises:
        InputError: There is no such folder.
    """
    if not is_folder(root, field="root"):
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
    return FoundImages(layout.name, split, variant, len(images), notice=notice_of(images))
