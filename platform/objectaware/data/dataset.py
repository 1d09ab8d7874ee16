"""Data sets: how a recipe names one, what a command opens once, and how training reads it.

`DataConfig` names a data set. `Dataset` opens it, with a subclass for each layout that images lie in. `PublishedSet`
describes a data set that others published. `TrainingImages` keeps decoded images in memory.

A data set is added as one file in `objectaware.data.sets`, which defines a subclass of `Dataset` with a name and, where
it was published, makes a `PublishedSet`. Both register themselves. Other modules take all that they know of it from
there. A module of another distribution does the same, by an entry point of the group `objectaware.variants`.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, model_validator
from pydantic_core import PydanticCustomError

from objectaware.data.folder import ImageFolder, Manifest, require_some_file, restrict
from objectaware.data.images import Images, UnreadableImage, none_readable
from objectaware.data.user_files import is_folder
from objectaware.errors import InputError
from objectaware.model import Address, Model, Positive, filled, load_entry_points

if TYPE_CHECKING:
    from objectaware.data.coco_json import CocoField
    from objectaware.data.sets.coco import CocoDataset, ObjectBoxes
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
        return Dataset.of(self).images


class OpenedImages(Images, Protocol):
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


class Dataset:
    """A data set that a command opens once and hands on: images, labels, true masks and boxes, manifest and hashes.

    Each is opened when it is first asked for, and kept. There is a subclass for each layout (docs/data.md). Defining
    one with a name registers it.

    Args:
        config: Names it.

    Attributes:
        config: As given.
        root: The folder, or the address of a pack.
        variant: One of the layout's variants; empty where it has none.
        split: One of the layout's splits; empty where it has none.
        metadata: Folder or file of labels and boxes that lie apart; empty where nothing does.
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

    def __init_subclass__(cls) -> None:
        """Register a layout by its name. A class without one is a base of several layouts."""
        if "name" in vars(cls):
            assert cls.name not in _layouts, f"two layouts are named {cls.name}"
            _layouts[cls.name] = cls

    def __init__(self, config: DataConfig) -> None:
        self.config = config
        self.root = config.root
        self.variant = config.variant or self.default_variant or ""
        self.split = config.split or ""
        self.metadata = config.metadata or ""
        self._whole_truth: dict[bool, GroundTruth] = {}

    @staticmethod
    def of(config: DataConfig) -> Dataset:
        """Make the data set that a configuration names; nothing is opened yet."""
        return layout_named(config.layout)(config)

    def open_images(self) -> OpenedImages:
        """Open all images of the layout. Only `images` calls it, which takes what the configuration asks for.

        Raises:
            InputError: Something is missing or malformed.
        """
        raise NotImplementedError

    def require_root(self) -> None:
        """Refuse at once a data set that is not there at all; opening its images checks the rest, which takes longer.

        Raises:
            InputError: It is not there.
        """
        if not is_folder(self.root, field="data.root"):
            raise InputError("data.root", self.root, "is not an existing folder", "Give the folder of the images.")

    @cached_property
    def images(self) -> OpenedImages:
        """The images.

        Raises:
            InputError: Something is missing or malformed.
        """
        images = self.open_images()
        if isinstance(images, ImageFolder):
            require_some_file(images, named_by=Path(self.root), field="data.root")
        if self.config.subset is not None:
            assert isinstance(images, ImageFolder), f"the images of the layout {self.name} are not files"
            images = restrict(images, self.config.subset)
        return images if self.config.classes is None else self.by_superclass(images)

    def by_superclass(self, images: OpenedImages) -> OpenedImages:
        """Label images with the nine superclasses of ImageNet-9 and leave others out, where `has_superclasses` says so.

        Raises:
            InputError: All would be left out.
        """
        raise NotImplementedError

    @property
    def image_ids(self) -> list[str]:
        """Name of each image."""
        return self.images.image_ids

    @property
    def files(self) -> ImageFolder:
        """The files of the images; a pack has none."""
        files = getattr(self.images, "files", self.images)
        assert isinstance(files, ImageFolder), f"the layout {self.name} has no files"
        return files

    @property
    def notice(self) -> str:
        """A line about the folder for the user, or an empty one."""
        return str(getattr(self.images, "notice", ""))

    @property
    def substitute(self) -> str:
        """Return what stands here for the published images, in one line; an empty one if it is those images."""
        return ""

    @cached_property
    def manifest(self) -> Manifest:
        """Names, sizes and times of the images' files, each looked at once."""
        return Manifest.of(self.files)

    def content_hash(self, verify: bool = False) -> str:
        """Hash names, sizes and times of the images, their labels, and their annotations.

        Args:
            verify: Hash the images' content instead of their times.
        """
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
        return ""

    @property
    def has_truth(self) -> bool:
        """Whether there are true masks or boxes of whole pictures, and they were downloaded."""
        return bool(self.masks)

    def truth(self, *, needs_boxes: bool = True) -> GroundTruth:
        """Open the true masks and boxes of all images.

        Args:
            needs_boxes: Whether boxes will be asked for; else the annotations may lack them.

        Raises:
            InputError: There are none, or their files are missing or malformed.
        """
        key = needs_boxes or True in self._whole_truth  # one with boxes serves both
        if key not in self._whole_truth:
            self._whole_truth[key] = self.truth_of(self.image_ids, needs_boxes=needs_boxes)
        return self._whole_truth[key]

    def truth_of(self, image_ids: list[str], *, needs_boxes: bool = True) -> GroundTruth:
        """Open the true masks and boxes of some images, in the order that they are named in; raises as `truth`."""
        remedy = f"Use one of {', '.join(layout.name for layout in layouts() if layout.masks)}."
        raise InputError("layout", self.name, "has neither true masks nor true boxes", remedy)

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
        """Open the true masks that policies train on, for layouts with `true_masks`; takes and raises as `truth_of`."""
        return self.truth_of(image_ids, needs_boxes=False)

    def training_truth_hash(self, verify: bool = False) -> str:
        """Hash the files that policies read true masks or boxes from, as `GroundTruth.content_hash`."""
        if self.is_pack or self.annotation_hash:
            return "annotations"  # a part of `content_hash`
        return self.training_truth(self.image_ids).content_hash(verify)

    def training_boxes(self, image_ids: list[str]) -> ObjectBoxes:
        """Open the true boxes that policies train on, for layouts with `true_boxes`; takes and raises as `truth_of`."""
        raise NotImplementedError

    def instances(self, *fields: CocoField) -> CocoDataset:
        """Open the images with their annotations, for layouts with `has_instances`.

        Args:
            fields: The fields of the annotations that will be used, to be refused now where they are malformed.

        Raises:
            InputError: Something is missing or malformed.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class PublishedSet:
    """A data set that others published. Making one makes it known by its name.

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

    def __post_init__(self) -> None:
        assert self.name not in _published, f"two published data sets are named {self.name}"
        _published[self.name] = self


_layouts: dict[str, type[Dataset]] = {}
_published: dict[str, PublishedSet] = {}


@cache
def _import_sets() -> None:
    from objectaware.data import sets

    for found in pkgutil.iter_modules(sets.__path__, f"{sets.__name__}."):
        importlib.import_module(found.name)
    load_entry_points()


def layouts() -> tuple[type[Dataset], ...]:
    """Return all layouts, in the order of their names."""
    _import_sets()
    return tuple(_layouts[name] for name in sorted(_layouts))


def published_sets() -> tuple[PublishedSet, ...]:
    """Return all published data sets, in the order of their names."""
    _import_sets()
    return tuple(_published[name] for name in sorted(_published))


def layout_named(name: str) -> type[Dataset]:
    """Find a layout.

    Raises:
        InputError: There is none of that name.
    """
    _import_sets()
    if name not in _layouts:
        remedy = f"Use one of {', '.join(layout.name for layout in layouts())}."
        raise InputError("layout", name, "is not known", remedy)
    return _layouts[name]


@dataclass(frozen=True)
class FoundImages:
    """A set of images that a folder holds in one layout, or why it does not.

    Attributes:
        data: The folder in the layout, with one of its splits and variants where it has some.
        num_images: How many; 0 with a problem.
        problem: Why the folder does not have this layout; empty where it does.
        notice: A line about the images for the user, or an empty one.
    """

    data: DataConfig
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
            _try(DataConfig(root=str(root), layout=layout.name, variant=variant, split=split))
            for variant in layout.variants or (None,)
            for split in layout.splits or (None,)
        ]
        yield from [one for one in tried if not one.problem] or tried[:1]


def _try(config: DataConfig) -> FoundImages:
    data = Dataset.of(config)
    try:
        return FoundImages(config, len(data.images), notice=data.notice)
    except InputError as error:
        return FoundImages(config, 0, str(error))


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

    def __init__(self, images: OpenedImages, *, max_bytes: int, unreadable: Mapping[str, str] | None = None) -> None:
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
            place = (index + offset) % len(self)
            if place in self._kept:
                return self._kept[place]
            if self.is_unreadable(place):
                continue
            try:
                pixels = self.source.read(place)
            except UnreadableImage as error:
                self.unreadable[self.image_ids[place]] = error.reason
                continue
            with self._lock:
                if pixels.nbytes <= self._free_bytes and place not in self._kept:
                    self._kept[place] = pixels
                    self._free_bytes -= pixels.nbytes
            return pixels
        raise none_readable(len(self), self.unreadable.items())

    def is_unreadable(self, index: int) -> bool:
        """Tell whether another image replaces this one, as far as is known from reading."""
        return self.image_ids[index] in self.unreadable
