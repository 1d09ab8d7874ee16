"""The data sets of the paper, as they were published: how a part is opened, and whether a folder holds all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from objectaware.data.dataset import DataConfig, Dataset, PublishedSet, published_sets
from objectaware.data.folder import MISSING, ImageFolder, Manifest
from objectaware.errors import InputError

PUBLISHED_SETS = published_sets()
"""All of them, in the order of their names."""

_DATA_PREFIX = "@data/"
_NO_FOLDERS: Mapping[str, str] = {}


def published_set(name: str) -> PublishedSet:
    """Find a data set by its name.

    Args:
        name: As the paper's tables have it, such as `ImageNet-R-9`; case and punctuation do not matter, so that
            `imagenet_r_9` finds it, too.

    Raises:
        InputError: There is none of that name.
    """
    for one in PUBLISHED_SETS:
        if _slug(one.name) == _slug(name):
            return one
    remedy = f"Use one of: {', '.join(one.name for one in PUBLISHED_SETS)}."
    raise InputError("data set", name, "is not known", remedy)


def published_data(
    name: str, part: str, data_folder: str | Path, folders: Mapping[str, str] = _NO_FOLDERS
) -> DataConfig:
    """Return the configuration that opens a part of a data set.

    Args:
        name: Name of the data set; see `published_set`.
        part: One of its parts.
        data_folder: Folder in which data sets lie under their usual names.
        folders: Folders of the data sets that lie elsewhere, by name as in `PUBLISHED_SETS`. Sets that usually share
            a folder, such as ImageNet-R and ImageNet-R-9, share it here, too, unless each has its own.

    Raises:
        InputError: There is no such data set or part.
    """
    found = published_set(name)
    sharing = (folders[one.name] for one in PUBLISHED_SETS if one.folder == found.folder and one.name in folders)
    root = folders.get(found.name) or next(sharing, str(Path(data_folder, found.folder)))
    return part_data(found, part, root, data_folder)


def part_data(published: PublishedSet, part: str, root: str | Path, data_folder: str | Path) -> DataConfig:
    """Return the configuration that opens a part from a folder of its own choice.

    Args:
        published: The data set.
        part: One of its parts.
        root: Its folder.
        data_folder: Folder that a field's `@data/` stands for.

    Raises:
        InputError: There is no such part.
    """
    if part not in published.parts:
        remedy = f"Use one of: {', '.join(published.parts) or 'none'}."
        raise InputError("part", part, f"is not a part of {published.name}", remedy)
    fields = dict(published.parts[part])
    for name, value in fields.items():
        if isinstance(value, str) and value.startswith(_DATA_PREFIX):
            fields[name] = str(Path(data_folder, value.removeprefix(_DATA_PREFIX)))
    return DataConfig.model_validate({"root": str(root), **fields})


def _slug(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


@dataclass(frozen=True)
class PublishedCheck:
    """The parts of a published data set that a folder holds.

    Attributes:
        published: The data set; its `source` and `licence` say where to get it.
        root: The folder that was looked into.
        found: Number of images in each part that is there, complete or not, by the part's name.
        missing: The problem with each part that is not there, by the part's name: the thing that was not found or is
            malformed, in one line.
    """

    published: PublishedSet
    root: Path
    found: Mapping[str, int]
    missing: Mapping[str, str]

    @property
    def whole_parts(self) -> list[str]:
        """Parts of which no image is missing, as far as their published number is known."""
        return [part for part, number in self.found.items() if number >= self.published.num_images.get(part, 0)]

    @property
    def is_whole(self) -> bool:
        """Whether all parts are there with all of their images."""
        return bool(self.found) and len(self.whole_parts) == len(self.published.parts)


def check_published(name: str, root: str | Path, data_folder: str | Path | None = None) -> PublishedCheck:
    """Open each part of a data set and count its images; their content is not read.

    Parts that exist to be measured on by true masks or boxes are missing without them.

    Args:
        name: Name of the data set; see `published_set`.
        root: Its folder.
        data_folder: Folder of other data sets and of metadata that some parts take; by default the one above.

    Raises:
        InputError: There is no data set of that name.
    """
    published = published_set(name)
    beside = Path(root).absolute().parent if data_folder is None else Path(data_folder)
    found: dict[str, int] = {}
    missing: dict[str, str] = {}
    for part in published.parts:
        data = Dataset.of(part_data(published, part, root, beside))
        try:
            _require_files(data.files, data.manifest)
            truth = data.truth() if part in published.measured else None
            for files in () if truth is None else truth.files:
                _require_files(files, Manifest.of(files))
        except InputError as error:
            missing[part] = str(error)
            continue
        if truth is not None and truth.notice:
            missing[part] = truth.notice
        else:
            found[part] = len(data.images)
    return PublishedCheck(published, Path(root), found, missing)


def _require_files(files: ImageFolder, manifest: Manifest) -> None:
    """Refuse files that are not all there."""
    absent = [index for index, size in enumerate(manifest.sizes) if size == MISSING]
    if absent:
        problem = f"is missing or cannot be looked at, as are {len(absent) - 1} others of {len(files)}"
        raise InputError("file", files.path(absent[0]), problem, "Extract or download it again.")
