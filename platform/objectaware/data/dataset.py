"""A data set: how a recipe names it, what a command opens once, and how training reads it.

`DataConfig` names a data set, `Dataset` opens it, and `TrainingImages` keeps decoded images in memory.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, model_validator
from pydantic_core import PydanticCustomError

from objectaware.data.folder import ImageFolder, Manifest, require_some_file, restrict
from objectaware.data.images import Images, UnreadableImage, none_readable
from objectaware.data.layouts import Boxes, Layout, OpenedImages, Place, SelectableImages, layout_named, layouts
from objectaware.data.user_files import is_folder
from objectaware.errors import InputError
from objectaware.model import Address, Model, Positive, filled

if TYPE_CHECKING:
    from objectaware.data.coco_json import CocoField
    from objectaware.data.sets.coco import CocoDataset
    from objectaware.data.truth import GroundTruth


def _known(name: str) -> str:
    """Validate a layout's name when it is given, since other packages have registered their layouts by then."""
    names = [layout.name for layout in layouts()]
    if name not in names:
        raise PydanticCustomError("unknown_name", "choose {names}", {"names": " | ".join(names)})
    return name


LayoutName = Annotated[str, AfterValidator(_known)]


class DataConfig(Model):
    """A set of images on disk.

    Which of the fields a layout takes is in its file (`objectaware.data.sets`).

    Attributes:
        root: The folder.
        layout: How images lie in it: `folder` any photos at any depth, `class-folders` one folder per class,
            `shards` a pack of `objectaware data pack`, in any store, and the published layouts of docs/data.md.
        variant: Variant of the data set, such as `mixed_rand` of the Backgrounds Challenge.
        split: Part of the data set, such as `train` or `val`.
        subset: List of the images that count, one path relative to the images' folder per line; by default all
            images count.
        classes: `imagenet-9`: labels are the nine superclasses of ImageNet-9, and images of other classes are left
            out.
        metadata: Folder or file of labels and boxes that lie apart from the images.
        shuffle_window: Only for the layout `shards`: an epoch goes through the shards in a random order, and shuffles
            the rows of this many shards at a time. A process keeps at most twice as many shards in memory.
    """

    root: Address
    layout: LayoutName = "folder"
    variant: str | None = None
    split: str | None = None
    subset: Address | None = None
    classes: Literal["imagenet-9"] | None = None
    metadata: Address | None = None
    shuffle_window: Positive | None = None

    @model_validator(mode="before")
    @classmethod
    def _fill_window(cls, values: object) -> object:
        """Fill in the default that depends on the layout, so that stored configurations are complete."""
        if isinstance(values, dict) and any(one.is_pack and one.name == values.get("layout") for one in layouts()):
            return filled(values, {"shuffle_window": 4})
        return values

    @model_validator(mode="after")
    def _fits_layout(self) -> Self:
        layout = layout_named(self.layout)
        self._require("split", layout.splits)
        self._require("variant", layout.variants, default=layout.default_variant)
        if self.subset is not None and not layout.are_files:
            problem = f"subset has no meaning for the layout {self.layout}, whose images are not files"
            raise ValueError(f"{problem}; leave it out")
        self._allow("classes", layout.has_superclasses)
        self._allow("metadata", layout.has_metadata)
        if layout.has_metadata and self.metadata is None:
            raise ValueError(f"metadata is missing: labels and boxes of the layout {self.layout} lie apart")
        self._allow("shuffle_window", layout.is_pack)
        return self

    def _require(self, field: str, choices: tuple[str, ...], default: str | None = None) -> None:
        """Refuse a choice that the layout does not have, and the lack of a choice that has no default."""
        value: str | None = getattr(self, field)
        self._allow(field, bool(choices))
        if value is None and choices and default is None:
            raise ValueError(f"{field} is missing: the layout {self.layout} has {', '.join(choices)}")
        if value is not None and value not in choices:
            raise ValueError(f"{field} = {value} is unknown: the layout {self.layout} has {', '.join(choices)}")

    def _allow(self, field: str, has_meaning: bool) -> None:
        value = getattr(self, field)
        if value is not None and not has_meaning:
            raise ValueError(f"{field} = {value} has no meaning for the layout {self.layout}; leave it out")

    def open(self) -> OpenedImages:
        """Open the images alone, of a new `Dataset`.

        Raises:
            InputError: Something is missing or malformed.
        """
        return Dataset(self).images


class Dataset:
    """A data set that a command opens once and hands on: images, labels, true masks and boxes, manifest and hashes.

    Each is opened when it is first asked for, and kept.

    Args:
        config: Names it.

    Attributes:
        config: As given.
        layout: The layout that it lies in.
        place: Which images of the folder are meant.
    """

    def __init__(self, config: DataConfig) -> None:
        self.config = config
        self.layout: Layout = layout_named(config.layout)
        self.place = Place(
            config.root,
            config.variant or self.layout.default_variant or "",
            config.split or "",
            config.metadata or "",
            config.shuffle_window or 1,
        )
        self._whole_truth: dict[bool, GroundTruth] = {}

    def require_root(self) -> None:
        """Refuse at once a data set that is not there at all; opening its images checks the rest.

        Raises:
            InputError: It is not there.
        """
        self.layout.require_root(self.config.root)

    @cached_property
    def images(self) -> OpenedImages:
        """The images.

        Raises:
            InputError: Something is missing or malformed.
        """
        images = self.layout.open(self.place)
        if isinstance(images, ImageFolder):
            require_some_file(images, named_by=Path(self.config.root), field="data.root")
        if self.config.subset is not None:
            assert isinstance(images, ImageFolder), f"the images of the layout {self.layout.name} are not files"
            images = restrict(images, self.config.subset)
        return images if self.config.classes is None else self._by_superclass(images)

    def _by_superclass(self, images: OpenedImages) -> OpenedImages:
        """Label images with the nine superclasses of ImageNet-9 and leave the others out."""
        from objectaware.data.sets.imagenet import SUPERCLASSES

        assert isinstance(images, SelectableImages), type(images)
        assert images.labels is not None
        superclasses = self.layout.superclasses(self.place)[images.labels]
        places = np.flatnonzero(superclasses >= 0)
        if not len(places):
            remedy = "Leave classes out, or give a folder that has some."
            raise InputError("classes", "imagenet-9", f"has none of its 370 classes in {self.config.root}", remedy)
        return images.select(places, superclasses[places], SUPERCLASSES)

    @property
    def image_ids(self) -> list[str]:
        """Name of each image."""
        return self.images.image_ids

    @property
    def files(self) -> ImageFolder:
        """The files of the images; a pack has none."""
        files = getattr(self.images, "files", self.images)
        assert isinstance(files, ImageFolder), f"the layout {self.layout.name} has no files"
        return files

    @property
    def notice(self) -> str:
        """A line about the folder for the user, or an empty one."""
        return str(getattr(self.images, "notice", ""))

    @cached_property
    def manifest(self) -> Manifest:
        """Names, sizes and times of the images' files, each looked at once."""
        return Manifest.of(self.files)

    def content_hash(self, verify: bool = False) -> str:
        """Hash names, sizes and times of the images, their labels, and their annotations.

        Args:
            verify: Hash the images' content instead of their times.
        """
        if self.layout.is_pack:
            from objectaware.data.pack import pack_hash

            return pack_hash(self.config.root, verify)
        digest = hashlib.sha256(self.manifest.content_hash(verify).encode())
        if self.images.labels is not None:
            # Some lie in files of their own; names decide which classes of two data sets are the same.
            digest.update(self.images.labels.tobytes())
            digest.update(json.dumps(list(self.images.class_names)).encode())
        digest.update(self.annotation_hash.encode())
        return digest.hexdigest()

    @property
    def annotation_hash(self) -> str:
        """Hash of the annotation file, where one file describes all images; else empty."""
        return self.layout.annotation_hash(self.place)

    @property
    def has_truth(self) -> bool:
        """Whether there are true masks or boxes of whole pictures, and they were downloaded."""
        return self.layout.has_truth(self.place)

    def truth(self, *, needs_boxes: bool = True) -> GroundTruth:
        """Open the true masks and boxes of all images.

        Args:
            needs_boxes: Whether boxes will be asked for; else the annotations may lack them.

        Raises:
            InputError: There are none, or their files are missing or malformed.
        """
        if not needs_boxes and True in self._whole_truth:
            return self._whole_truth[True]
        if needs_boxes not in self._whole_truth:
            self._whole_truth[needs_boxes] = self.truth_of(self.image_ids, needs_boxes=needs_boxes)
        return self._whole_truth[needs_boxes]

    def truth_of(self, image_ids: list[str], *, needs_boxes: bool = True) -> GroundTruth:
        """Open the true masks and boxes of some images, in the order that they are named in; raises as `truth`."""
        return self.layout.truth(self.place, image_ids, needs_boxes=needs_boxes)

    def find_truth(self, *, needs_boxes: bool = True) -> tuple[GroundTruth | None, str]:
        """Open the true masks and boxes for a use that can do without them.

        Returns:
            The truth, or None where the data set has none, it was not downloaded, or it cannot be used. In the last
            case a line says why; else the line is empty.
        """
        try:
            return (self.truth(needs_boxes=needs_boxes) if self.has_truth else None), ""
        except InputError as error:
            return None, f"the true masks and boxes are not used: {error}"

    def training_truth(self, image_ids: list[str]) -> GroundTruth:
        """Open the true masks that policies train on, for layouts with `true_masks`.

        Args:
            image_ids: Some of the images, in order.

        Raises:
            InputError: Their files are missing or malformed.
        """
        return self.layout.training_truth(self.place, image_ids)

    def training_truth_hash(self, verify: bool = False) -> str:
        """Hash the files that policies read true masks or boxes from, as `GroundTruth.content_hash`."""
        if self.layout.is_pack or self.annotation_hash:
            return "annotations"  # a part of `content_hash`
        return self.training_truth(self.image_ids).content_hash(verify)

    def training_boxes(self, image_ids: list[str]) -> Boxes:
        """Open the true boxes that policies train on, for layouts with `true_boxes`.

        Args:
            image_ids: Some of the images, in order.

        Raises:
            InputError: Their files are missing or malformed.
        """
        return self.layout.training_boxes(self.place, image_ids)

    def instances(self, *fields: CocoField) -> CocoDataset:
        """Open the images with their annotations, for layouts with `has_instances`.

        Args:
            fields: The fields of the annotations that will be used, to be refused now where they are malformed.

        Raises:
            InputError: Something is missing or malformed.
        """
        whole = self.layout.instances(self.place, *fields)
        return whole if self.config.subset is None else whole.select(self.image_ids)


@dataclass(frozen=True)
class FoundImages:
    """A set of images that a folder holds in one layout, or why it does not.

    Attributes:
        layout: Name of the layout.
        split: One of its splits, or None where it has none.
        variant: One of its variants, or None where it has none.
        num_images: How many; 0 with a problem.
        problem: Why the folder does not have this layout; empty where it does.
        notice: A line about the images for the user, or an empty one.
    """

    layout: str
    split: str | None
    variant: str | None
    num_images: int
    problem: str = ""
    notice: str = ""


def find_layouts(root: str | Path) -> Iterator[FoundImages]:
    """Try every layout on a folder.

    Yield the splits and variants of a layout that are there, or one entry that says why none is. Layouts whose labels
    lie in a folder of their own are not tried.

    Raises:
        InputError: There is no such folder.
    """
    if not is_folder(root, field="root"):
        raise InputError("root", root, "is not an existing folder", "Give a folder that holds images.")
    for layout in layouts():
        if layout.has_metadata:
            continue
        tried = [
            _try(root, layout, split, variant)
            for variant in layout.variants or (None,)
            for split in layout.splits or (None,)
        ]
        yield from [one for one in tried if not one.problem] or tried[:1]


def _try(root: str | Path, layout: Layout, split: str | None, variant: str | None) -> FoundImages:
    data = Dataset(DataConfig(root=str(root), layout=layout.name, variant=variant, split=split))
    try:
        num_images = len(data.images)
    except InputError as error:
        return FoundImages(layout.name, split, variant, 0, str(error))
    return FoundImages(layout.name, split, variant, num_images, notice=data.notice)


class NamedImages(Images, Protocol):
    """A data set whose images have names."""

    @property
    def image_ids(self) -> list[str]:
        """Name of each image."""


class TrainingImages:
    """A data set as training reads it: decoded once while memory allows, and without holes.

    An image that cannot be read is replaced by the next one that can, so that an epoch keeps its length and its
    order. `unreadable` names these images, with reasons.

    Args:
        images: The data set.
        max_bytes: Size of the decoded pixels kept in memory, those that were read first; 0 keeps none.
        unreadable: Images that are known beforehand to give no picture, with reasons.

    Attributes:
        source: The data set.
    """

    def __init__(self, images: NamedImages, *, max_bytes: int, unreadable: Mapping[str, str] | None = None) -> None:
        self.image_ids = images.image_ids
        self.source = images
        self.unreadable = dict(unreadable or {})
        self._kept: dict[int, NDArray[np.uint8]] = {}
        self._free_bytes = max_bytes
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.source)

    def read(self, index: int) -> NDArray[np.uint8]:
        """Read an image as 8-bit RGB, shape (H, W, 3).

        Raises:
            InputError: No image of the data set can be read.
        """
        for offset in range(len(self)):
            pixels = self._read_one((index + offset) % len(self))
            if pixels is not None:
                return pixels
        raise none_readable(len(self), self.unreadable.items())

    def is_unreadable(self, index: int) -> bool:
        """Tell whether another image replaces this one, as far as is known from reading."""
        return self.image_ids[index] in self.unreadable

    def _read_one(self, index: int) -> NDArray[np.uint8] | None:
        kept = self._kept.get(index)
        if kept is not None:
            return kept
        if self.is_unreadable(index):
            return None
        try:
            pixels = self.source.read(index)
        except UnreadableImage as error:
            self.unreadable[self.image_ids[index]] = error.reason
            return None
        with self._lock:
            if pixels.nbytes <= self._free_bytes and index not in self._kept:
                self._kept[index] = pixels
                self._free_bytes -= pixels.nbytes
        return pixels
