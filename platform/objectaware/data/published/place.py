"""From the name of a published data set to the configuration that opens one of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectaware.data.published.sets import PUBLISHED_SETS, PublishedSet
from objectaware.errors import InputError

if TYPE_CHECKING:
    from objectaware.config import DataConfig

_DATA_PREFIX = "@data/"
_NO_FOLDERS: Mapping[str, str] = {}


def published_set(name: str) -> PublishedSet:
    """Finds a data set by its name.

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
    """Says how a part of a data set is opened.

    Args:
        name: Of the data set; see `published_set`.
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
    """Says how a part is opened that lies in a folder of its own choice.

    Args:
        published: The data set.
        part: One of its parts.
        root: Its folder.
        data_folder: Folder that a field's `@data/` stands for.

    Raises:
        InputError: There is no such part.
    """
    from objectaware.config import DataConfig  # here, as the configuration is made of this package's table

    if part not in published.parts:
        remedy = f"Use one of: {', '.join(published.parts) or 'none'}."
        raise InputError("part", part, f"is no part of {published.name}", remedy)
    fields = {name: _in_data_folder(value, data_folder) for name, value in published.parts[part].items()}
    return DataConfig.model_validate({"root": str(root), **fields})


def _in_data_folder(value: Any, data_folder: str | Path) -> Any:  # noqa: ANN401 - a field's value
    if isinstance(value, str) and value.startswith(_DATA_PREFIX):
        return str(Path(data_folder, value.removeprefix(_DATA_PREFIX)))
    return value


def _slug(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
