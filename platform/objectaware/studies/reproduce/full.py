"""The paper's own scale: published data sets from the user's folders, and networks of others from files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from objectaware.config import DataConfig
from objectaware.data.published import published_data, published_set
from objectaware.errors import InputError
from objectaware.paper.nodes import Images, Node, Published, ValuePath, images_of
from objectaware.recipes import read_yaml


@dataclass(frozen=True)
class Full:
    """The paper's data sets and settings.

    Attributes:
        data_folder: Folder in which data sets lie under their usual names.
        folders: Folders of the data sets that lie elsewhere, by name.
        networks: Files of networks and masks of others, by the name in the paper's tables.
        mark: Empty, since the full scale needs no mark.
    """

    data_folder: Path
    folders: Mapping[str, str] = field(default_factory=dict)
    networks: Mapping[str, str] = field(default_factory=dict)
    mark: str = ""
    _seen: dict[Images, int | str] = field(default_factory=dict, compare=False, repr=False)

    def adapted(self, node: Node) -> Node:
        """Return the node itself."""
        return node

    def problem(self, node: Node) -> str | None:
        """Return what is missing of a node's own images or of others' files, or None."""
        if isinstance(node, Published):
            return self._file_problem(node)
        problems = (self.images_problem(images) for images in images_of(node))
        return next((problem for problem in problems if problem is not None), None)

    def images_problem(self, images: Images) -> str | None:
        """Return why a part of a data set cannot be opened, in one line, or None if it can."""
        seen = self._look(images)
        return seen if isinstance(seen, str) else None

    def num_images(self, images: Images) -> int | None:
        """Return the number of images that exist, else the published number, or None if neither is known."""
        seen = self._look(images)
        return seen if isinstance(seen, int) else published_number(images)

    def _look(self, images: Images) -> int | str:
        """Return the number of images, or why they cannot be opened. Each part is opened once."""
        if images not in self._seen:
            try:
                self._seen[images] = len(self.data(images).open())
            except InputError as error:
                self._seen[images] = f"{images.name} {images.part}: {error}"
        return self._seen[images]

    def _file_problem(self, node: Published) -> str | None:
        if node.name not in self.networks:
            return f"{node.name}: no file of it is named (--networks)"
        address = self.networks[node.name]
        missing = "://" not in address and not Path(address).exists()
        return f"{node.name}: {address} does not exist" if missing else None

    def data(self, images: Images) -> DataConfig:
        """Return a part of a data set, or those of its images that a list in the data folder names."""
        data = published_data(images.name, images.part, self.data_folder, self.folders)
        if images.subset is None:
            return data
        return DataConfig.model_validate({**data.model_dump(), "subset": str(self.data_folder / images.subset)})

    def file(self, node: Published) -> str:
        """Return the address that the user has given."""
        return self.networks[node.name]

    def class_name(self, name: str) -> str:
        """Return the paper's name, which is also the data sets'."""
        return name

    def path(self, path: ValuePath) -> ValuePath:
        """Return the path unchanged."""
        return path

    def epoch(self, epoch: int) -> int:
        """Return the epoch unchanged."""
        return epoch

    def fields(self, node: Node) -> dict[str, Any]:
        """Return no fields, since the plan defines everything."""
        return {}


def published_number(images: Images) -> int | None:
    """Return the published number of images of a part, or None if it is not known."""
    return None if images.subset is not None else published_set(images.name).num_images.get(images.part)


def lacking(full: Full, nodes: Iterable[Node], shown: Iterable[Images] = ()) -> list[str]:
    """Return what a plan lacks: names of data sets with a missing part, and of networks and masks of others.

    Args:
        full: The scale, which knows where data sets and files lie.
        nodes: Nodes of the plan.
        shown: Images that are shown without a stage.
    """
    known = list(nodes)
    parts = dict.fromkeys([*(images for node in known for images in images_of(node)), *shown])
    sets = [images.name for images in parts if full.images_problem(images) is not None]
    others = [node.name for node in known if isinstance(node, Published) and full.problem(node) is not None]
    return list(dict.fromkeys([*sets, *others]))


def read_names(file: Path | None, field_name: str, known: tuple[str, ...] = ()) -> dict[str, str]:
    """Read a YAML file of paths by name.

    Args:
        file: The file, or None for no names.
        field_name: Name of the field in messages: `datasets` or `networks`.
        known: Names that are allowed; for `datasets` those of the published sets.

    Raises:
        InputError: The file is missing or malformed, or a name is not known.
    """
    if file is None:
        return {}
    if not file.is_file():
        raise InputError(field_name, file, "does not exist", "Give a YAML file of `name: path` lines.")
    content = read_yaml(file, field=field_name)
    if not isinstance(content, dict) or not all(isinstance(path, str) for path in content.values()):
        raise InputError(field_name, file, "is not a mapping of names to paths", "Write `name: path` lines.")
    if field_name == "datasets":
        return {published_set(str(name)).name: path for name, path in content.items()}
    for name in content:
        if name not in known:
            raise InputError(field_name, name, "is named by no table", f"Use one of: {', '.join(known)}.")
    return {str(name): path for name, path in content.items()}
