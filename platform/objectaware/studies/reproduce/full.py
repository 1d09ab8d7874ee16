"""The paper's own scale: published data sets where the user has them, networks of others from files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from objectaware.config import DataConfig
from objectaware.data.published import published_data, published_set
from objectaware.errors import InputError
from objectaware.paper.nodes import Images, Node, Published, ValuePath, images_of
from objectaware.plain_yaml import read_yaml


@dataclass(frozen=True)
class Full:
    """The paper's data sets and settings.

    Attributes:
        data_folder: Where data sets lie under their usual names.
        folders: Where those lie that are elsewhere, by name.
        networks: Files of networks and masks of others, by the name that the paper's tables have.
        mark: Nothing.
    """

    data_folder: Path
    folders: Mapping[str, str] = field(default_factory=dict)
    networks: Mapping[str, str] = field(default_factory=dict)
    mark: str = ""
    _seen: dict[Images, int | str] = field(default_factory=dict, compare=False, repr=False)

    def adapted(self, node: Node) -> Node:
        """The node itself."""
        return node

    def problem(self, node: Node) -> str | None:
        """What of a node's own images or of others' files is not there."""
        if isinstance(node, Published):
            return self._file_problem(node)
        problems = (self.images_problem(images) for images in images_of(node))
        return next((problem for problem in problems if problem is not None), None)

    def images_problem(self, images: Images) -> str | None:
        """Why a part of a data set cannot be opened, in one line; None where it can."""
        seen = self._look(images)
        return seen if isinstance(seen, str) else None

    def num_images(self, images: Images) -> int | None:
        """How many images are there, or as published where they are not; None where neither is known."""
        seen = self._look(images)
        return seen if isinstance(seen, int) else published_number(images)

    def _look(self, images: Images) -> int | str:
        """The number of images, or why they cannot be opened; looked at once."""
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
        """A part of a data set, or the images of it that a list under the data folder names."""
        data = published_data(images.name, images.part, self.data_folder, self.folders)
        if images.subset is None:
            return data
        return DataConfig.model_validate({**data.model_dump(), "subset": str(self.data_folder / images.subset)})

    def file(self, node: Published) -> str:
        """The file that the user has named."""
        return self.networks[node.name]

    def class_name(self, name: str) -> str:
        """The paper's name is the data sets'."""
        return name

    def path(self, path: ValuePath) -> ValuePath:
        """The same."""
        return path

    def epoch(self, epoch: int) -> int:
        """The same."""
        return epoch

    def fields(self, node: Node) -> dict[str, Any]:
        """None: the plan says all."""
        return {}


def published_number(images: Images) -> int | None:
    """The published number of images of a part; None where it is not known."""
    return None if images.subset is not None else published_set(images.name).num_images.get(images.part)


def lacking(full: Full, nodes: Iterable[Node], shown: Iterable[Images] = ()) -> list[str]:
    """What of a plan is not here: names of data sets of which a part is missing, and of networks and masks of others.

    Args:
        full: Where things are.
        nodes: The plan's nodes.
        shown: Images that are shown as they are.
    """
    known = list(nodes)
    parts = dict.fromkeys([*(images for node in known for images in images_of(node)), *shown])
    sets = [images.name for images in parts if full.images_problem(images) is not None]
    others = [node.name for node in known if isinstance(node, Published) and full.problem(node) is not None]
    return list(dict.fromkeys([*sets, *others]))


def read_names(file: Path | None, field_name: str, known: tuple[str, ...] = ()) -> dict[str, str]:
    """Reads a YAML file of paths by name.

    Args:
        file: The file; None for no names.
        field_name: What it is called in messages: `datasets` or `networks`.
        known: Names that may stand in it; of `datasets` those of the published sets.

    Raises:
        InputError: It is no such file, or a name is not known.
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
