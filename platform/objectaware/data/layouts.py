"""The registry of data sets: the layouts that images lie in, and the data sets that others published.

A data set is added as one file in `objectaware.data.sets`, which registers its layout with `register_layout` and, where
it was published, its parts with `register_published`. Other modules take all that they know of it from there. A module
of another distribution registers in the same way, by an entry point of the group `objectaware.variants`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from objectaware.errors import InputError
from objectaware.model import load_entry_points

if TYPE_CHECKING:
    from objectaware.data.coco_json import CocoField
    from objectaware.data.sets.coco import CocoDataset
    from objectaware.data.truth import GroundTruth


class OpenedImages(Protocol):
    """The images of a data set, by index."""

    @property
    def image_ids(self) -> list[str]:
        """Name of each image, unique in the data set."""

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """Class index of each image, (N,), or None."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, by index."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> NDArray[np.uint8]:
        """Read an image, (H, W, 3), upright.

        Raises:
            objectaware.data.images.UnreadableImage: The file gives no picture.
        """


@runtime_checkable
class SelectableImages(OpenedImages, Protocol):
    """Images that can be left out or labelled otherwise."""

    def select(
        self,
        places: NDArray[np.int64],
        labels: NDArray[np.int64] | None = None,
        class_names: Sequence[str] | None = None,
    ) -> OpenedImages:
        """Take some of the images, by index, with labels of their own where they are given."""


class Boxes(Protocol):
    """Boxes to train with, by index of the image."""

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        """Return the boxes (n, 4), x0 y0 x1 y1 relative to the image, margin included."""


@dataclass(frozen=True)
class Place:
    """The images of a folder that are meant. A field that the layout does not have is empty.

    Attributes:
        root: The folder, or the address of a pack.
        variant: One of the layout's variants.
        split: One of the layout's splits.
        metadata: Folder or file of labels and boxes that lie apart.
        shuffle_window: Shards that training mixes, for packs.
    """

    root: str
    variant: str = ""
    split: str = ""
    metadata: str = ""
    shuffle_window: int = 1


class Layout:
    """One way in which images lie in a folder (docs/data.md).

    Attributes:
        name: As in `data.layout` of a recipe.
        content: The files of the folder, for `data list`.
        labels: Meaning of the labels; empty where there are none.
        masks: Form of the true masks or boxes; empty where there are none.
        splits: Values of `data.split`, one of which must be given; empty where the field has no meaning.
        variants: Values of `data.variant`; empty where the field has no meaning.
        default_variant: Variant where none is given; None where one must be.
        are_files: Whether each image is a file of the folder and shown whole, so that a list can name it and a pack
            can hold it.
        has_superclasses: Whether `data.classes: imagenet-9` has a meaning.
        has_metadata: Whether labels or boxes lie in a folder or file of their own, `data.metadata`.
        has_instances: Whether `instances` gives annotations in COCO's format.
        is_pack: Whether it is a pack of `objectaware data pack`, of images of any layout.
        true_masks: Whether policies can train on its true masks (`training_truth`).
        true_boxes: Whether policies can train on its true boxes (`training_boxes`).
    """

    name: ClassVar[str]
    content: ClassVar[str]
    labels: ClassVar[str] = ""
    masks: ClassVar[str] = ""
    splits: ClassVar[tuple[str, ...]] = ()
    variants: ClassVar[tuple[str, ...]] = ()
    default_variant: ClassVar[str | None] = None
    are_files: ClassVar[bool] = True
    has_superclasses: ClassVar[bool] = False
    has_metadata: ClassVar[bool] = False
    has_instances: ClassVar[bool] = False
    is_pack: ClassVar[bool] = False
    true_masks: ClassVar[bool] = False
    true_boxes: ClassVar[bool] = False

    def open(self, place: Place) -> OpenedImages:
        """Open the images.

        Raises:
            InputError: Something is missing or malformed.
        """
        raise NotImplementedError

    def require_root(self, root: str) -> None:
        """Refuse at once a data set that is not there at all; `open` looks at the rest, which may take minutes.

        Raises:
            InputError: It is not there.
        """
        from objectaware.data.user_files import is_folder

        if not is_folder(root, field="data.root"):
            raise InputError("data.root", root, "is not an existing folder", "Give the folder of the images.")

    def superclasses(self, place: Place) -> NDArray[np.int64]:
        """Return the superclass of ImageNet-9 of each class, 0 to 8, or -1, where `has_superclasses` says so."""
        raise NotImplementedError

    def annotation_hash(self, place: Place) -> str:
        """Hash the annotation file, where one file describes all images; else return an empty text."""
        return ""

    def has_truth(self, place: Place) -> bool:
        """Tell whether there are true masks or boxes of whole pictures, and they were downloaded."""
        return bool(self.masks)

    def truth(self, place: Place, image_ids: list[str], *, needs_boxes: bool) -> GroundTruth:
        """Open the true masks and boxes of images.

        Args:
            place: The data set.
            image_ids: Some of its images, in order.
            needs_boxes: Whether boxes will be asked for; else fields of annotations that only boxes need may be absent.

        Raises:
            InputError: There are none, or their files are missing or malformed.
        """
        remedy = f"Use one of {', '.join(layout.name for layout in layouts() if layout.masks)}."
        raise InputError("layout", self.name, "has neither true masks nor true boxes", remedy)

    def training_truth(self, place: Place, image_ids: list[str]) -> GroundTruth:
        """Open the true masks of images to train on, for layouts with `true_masks`; raises as `truth`."""
        return self.truth(place, image_ids, needs_boxes=False)

    def training_boxes(self, place: Place, image_ids: list[str]) -> Boxes:
        """Open the true boxes of images to train on, for layouts with `true_boxes`; raises as `truth`."""
        raise NotImplementedError

    def instances(self, place: Place, *fields: CocoField) -> CocoDataset:
        """Open the images with their annotations, for layouts with `has_instances`.

        Args:
            place: The data set.
            fields: The fields of the annotations that will be used, to be refused now where they are malformed.

        Raises:
            InputError: Something is missing or malformed.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class PublishedSet:
    """A data set that others published.

    Attributes:
        name: As in `datasets` of the paper's tables (`paper/tables/*.yaml`).
        folder: Where it lies under the data folder by default, as in `jobs/recipes/base/*.yaml`.
        licence: Terms of use, in short; those of the source hold.
        source: Where to get it.
        parts: Fields of `DataConfig` other than `root` by part. A value that starts with `@data/` is a path under the
            data folder.
        num_images: Published number of images by part, where it is known.
        note: Anything else that a user must know, in a sentence.
        measured: Parts that exist to be measured on by true masks or boxes, and are of no use without them.
    """

    name: str
    folder: str
    licence: str
    source: str
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    num_images: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    measured: tuple[str, ...] = ()


_layouts: dict[str, Layout] = {}
_published: dict[str, PublishedSet] = {}
LayoutClass = TypeVar("LayoutClass", bound=type[Layout])


def register_layout(layout: LayoutClass) -> LayoutClass:
    """Make a layout known by its name; a decorator of its class."""
    assert layout.name not in _layouts, f"two layouts are named {layout.name}"
    _layouts[layout.name] = layout()
    return layout


def register_published(*published: PublishedSet) -> None:
    """Make published data sets known by their names."""
    for one in published:
        assert one.name not in _published, f"two published data sets are named {one.name}"
        _published[one.name] = one


@cache
def _import_sets() -> None:
    from objectaware.data import sets

    for found in pkgutil.iter_modules(sets.__path__, f"{sets.__name__}."):
        importlib.import_module(found.name)
    load_entry_points()


def layouts() -> tuple[Layout, ...]:
    """Return all layouts, in the order of their names."""
    _import_sets()
    return tuple(_layouts[name] for name in sorted(_layouts))


def published_sets() -> tuple[PublishedSet, ...]:
    """Return all published data sets, in the order of their names."""
    _import_sets()
    return tuple(_published[name] for name in sorted(_published))


def layout_named(name: str) -> Layout:
    """Find a layout.

    Raises:
        InputError: There is none of that name.
    """
    _import_sets()
    if name not in _layouts:
        remedy = f"Use one of {', '.join(layout.name for layout in layouts())}."
        raise InputError("layout", name, "is not known", remedy)
    return _layouts[name]
