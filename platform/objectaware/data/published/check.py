"""Whether a published data set lies whole in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from objectaware.data.folder import ImageFolder
from objectaware.data.published.place import part_data, published_set
from objectaware.data.published.sets import PublishedSet
from objectaware.data.shards import PackedImages
from objectaware.errors import InputError

if TYPE_CHECKING:
    from objectaware.config import DataConfig


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
        try:
            num_images = _count(part_data(published, part, root, beside))
        except InputError as error:
            missing.append(MissingPart(part, str(error)))
        else:
            found.append(FoundPart(part, num_images, published.num_images.get(part)))
    return PublishedCheck(published, Path(root), tuple(found), tuple(missing))


def _count(data: DataConfig) -> int:
    """How many images there are, all of whose files exist."""
    images = data.open()
    assert not isinstance(images, PackedImages), "no published set is a pack"
    files = images if isinstance(images, ImageFolder) else images.files
    absent = [index for index in range(len(files)) if not files.path(index).exists()]
    if absent:
        problem = f"does not exist, nor do {len(absent) - 1} others of {len(files)}"
        raise InputError("file", files.path(absent[0]), problem, "Extract the archive again.")
    return len(images)
