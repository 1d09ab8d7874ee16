"""Whether a published data set lies whole in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from objectaware.data.folder import ImageFolder
from objectaware.data.manifest import MISSING, Manifest
from objectaware.data.published.entry import PublishedSet
from objectaware.data.published.place import part_data, published_set
from objectaware.data.shards import PackedImages
from objectaware.data.truth import GroundTruth
from objectaware.errors import InputError

if TYPE_CHECKING:
    from objectaware.config import DataConfig

# Beginnings of the names of parts that exist to be measured on by masks or boxes.
_PARTS_WITH_TRUTH = ("redo-val", "redo-test", "wsol-", "segmentation-")


@dataclass(frozen=True)
class FoundPart:
    """A part that is there.

    Attributes:
        part: Its name.
        num_images: How many images were found.
        num_published: How many there should be; None where that is not known.
    """

    part: str
    num_images: int
    num_published: int | None

    @property
    def is_whole(self) -> bool:
        """Whether no image is missing."""
        return self.num_published is None or self.num_images >= self.num_published


@dataclass(frozen=True)
class MissingPart:
    """A part that cannot be opened.

    Attributes:
        part: Its name.
        problem: What was looked for and not found, or is malformed; one line.
    """

    part: str
    problem: str


@dataclass(frozen=True)
class PublishedCheck:
    """What of a published data set a folder holds.

    Attributes:
        published: The data set; its `source` and `licence` say where to get it.
        root: The folder that was looked into.
        found: Parts that are there, whole or not.
        missing: Parts that are not.
    """

    published: PublishedSet
    root: Path
    found: tuple[FoundPart, ...]
    missing: tuple[MissingPart, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all parts are there with all of their images."""
        return bool(self.found) and not self.missing and all(part.is_whole for part in self.found)


def check_published(name: str, root: str | Path, data_folder: str | Path | None = None) -> PublishedCheck:
    """Opens each part of a data set and counts its images; their content is not read.

    Parts that exist to be measured on by true masks or boxes are missing without them.

    Args:
        name: Of the data set; see `published_set`.
        root: Its folder.
        data_folder: Folder of other data sets and of metadata that some parts take; by default the one above.

    Raises:
        InputError: There is no data set of that name.
    """
    published = published_set(name)
    beside = Path(root).absolute().parent if data_folder is None else Path(data_folder)
    found: list[FoundPart] = []
    missing: list[MissingPart] = []
    for part in published.parts:
        data = part_data(published, part, root, beside)
        try:
            num_images = _count(data)
            notice = _check_truth(data) if part.startswith(_PARTS_WITH_TRUTH) else ""
        except InputError as error:
            missing.append(MissingPart(part, str(error)))
            continue
        if notice:
            missing.append(MissingPart(part, notice))
        else:
            found.append(FoundPart(part, num_images, published.num_images.get(part)))
    return PublishedCheck(published, Path(root), tuple(found), tuple(missing))


def _count(data: DataConfig) -> int:
    """How many images there are, all of whose files exist."""
    images = data.open()
    assert not isinstance(images, PackedImages), "no published set is a pack"
    _check_files(images if isinstance(images, ImageFolder) else images.files)
    return len(images)


def _check_truth(data: DataConfig) -> str:
    """Looks for the files of a part's true masks and boxes; gives what there is to say of them."""
    truth = GroundTruth(data.root, data.layout, data.split, data.open().image_ids, metadata=data.metadata)
    for files in truth.files:
        _check_files(files)
    return truth.notice


def _check_files(files: ImageFolder) -> None:
    absent = [index for index, size in enumerate(Manifest.of(files).sizes) if size == MISSING]
    if absent:
        problem = f"is missing or cannot be looked at, as are {len(absent) - 1} others of {len(files)}"
        raise InputError("file", files.path(absent[0]), problem, "Extract the archive again.")
