"""ObjectNet 1.0: `objectnet-1.0/images/<folder>/*.png` and `objectnet-1.0/mappings/*.json`.

Every picture has a red border of two pixels, which marks it as a test picture and is cut off here. Folders are
numbered in the order of their names; the mappings have orders of their own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from objectaware.data.folder import ImageFolder
from objectaware.data.layouts import Layout, Place, PublishedSet, register_layout, register_published
from objectaware.data.sets.imagenet import common_superclass, superclasses_of
from objectaware.data.user_files import EXTRACTED, find_base, read_lines
from objectaware.errors import InputError

_LABELS = "mappings/folder_to_objectnet_label.json"
_BORDER = 2


class BorderlessImages:
    """Images of a folder whose outermost pixels do not belong to the picture.

    Not an `ImageFolder`, whose files others read or copy whole.

    Args:
        files: The images as they lie in their files.
        border: Pixels to cut off on each side.

    Attributes:
        files: As given.
        root: Folder of the images.
        image_ids: Paths relative to it.
        labels: Class index of each image, (N,), or None.
        class_names: Names of the classes, by index.
    """

    def __init__(self, files: ImageFolder, border: int = _BORDER) -> None:
        self.files = files
        self.root = files.root
        self.image_ids = files.image_ids
        self.labels = files.labels
        self.class_names = files.class_names
        self._border = border

    def __len__(self) -> int:
        return len(self.files)

    def read(self, index: int) -> NDArray[np.uint8]:
        """Return the pixels (H, W, 3) of one image without its border.

        Raises:
            objectaware.data.images.UnreadableImage: The file gives no picture.
        """
        image = self.files.read(index)
        return image[self._border : -self._border, self._border : -self._border]

    def select(
        self,
        places: NDArray[np.int64],
        labels: NDArray[np.int64] | None = None,
        class_names: Sequence[str] | None = None,
    ) -> BorderlessImages:
        """Do the same as `ImageFolder.select`."""
        return BorderlessImages(self.files.select(places, labels, class_names), self._border)


def load_objectnet(root: str | Path) -> BorderlessImages:
    """Open the pictures with the numbers of their folders; class names are those that the mappings give them.

    Raises:
        InputError: The images or a mapping are missing, or a folder has no name in the mapping.
    """
    base = _base(root)
    folders = ImageFolder.from_classes(base / "images")
    label_of_folder = _read_mapping(base / _LABELS)
    for folder in folders.class_names:
        if folder not in label_of_folder:
            problem = f"has no entry for the folder {folder}"
            raise InputError("objectnet", base / _LABELS, problem, "Extract the archive again.")
    names = [str(label_of_folder[folder]) for folder in folders.class_names]
    return BorderlessImages(ImageFolder(folders.root, folders.image_ids, folders.labels, names))


def objectnet_superclasses(root: str | Path) -> NDArray[np.int64]:
    """Return the superclass of ImageNet-9 of each class of `load_objectnet`, or -1.

    A class counts where all of ImageNet's classes that the mappings give it have the superclass in common. That is
    one class in the published mappings, Bicycle (444 and 671, wheeled vehicle); the paper does not say which classes
    its ObjectNet-9 had.

    Raises:
        InputError: A mapping is missing or malformed.
    """
    base = _base(root)
    mappings = base / "mappings"
    names_of_label = _read_mapping(mappings / "objectnet_to_imagenet_1k.json")
    class_of_line = {
        int(line): int(number) for number, line in _read_mapping(mappings / "pytorch_to_imagenet_2012_id.json").items()
    }
    lines = read_lines(mappings / "imagenet_to_label_2012_v2", field="objectnet", remedy=EXTRACTED)
    class_of_name = {name: class_of_line[line] for line, name in enumerate(lines) if line in class_of_line}
    superclasses = []
    for label in load_objectnet(root).class_names:
        names = [name.strip() for name in str(names_of_label.get(label, "")).split(";") if name.strip()]
        unknown = [name for name in names if name not in class_of_name]
        if unknown:
            problem = f"has no line {unknown[0]!r}, which stands for {label}"
            raise InputError("objectnet", mappings / "imagenet_to_label_2012_v2", problem, "Extract the archive again.")
        superclasses.append(common_superclass([class_of_name[name] for name in names]))
    return np.array(superclasses, dtype=np.int64)


def _base(root: str | Path) -> Path:
    return find_base(root, ["objectnet-1.0"], [_LABELS, "images"], field="objectnet", remedy=EXTRACTED)


def _read_mapping(path: Path) -> dict[str, Any]:
    try:
        content = json.loads("\n".join(read_lines(path, field="objectnet", remedy=EXTRACTED)))
    except json.JSONDecodeError as error:
        raise InputError("objectnet", path, f"is not JSON ({error})", "Extract the archive again.") from error
    if not isinstance(content, dict):
        raise InputError("objectnet", path, "is not a mapping", "Extract the archive again.")
    return content


@register_layout
class ObjectNet(Layout):
    """ObjectNet 1.0."""

    name = "objectnet"
    content = "objectnet-1.0/images/<class>/*.png and mappings/*.json; the border is cut off"
    labels = "class"
    are_files = False
    has_superclasses = True

    def open(self, place: Place) -> BorderlessImages:
        """List the pictures."""
        return load_objectnet(place.root)

    def superclasses(self, place: Place) -> NDArray[np.int64]:
        """Return the superclasses that its own mappings give."""
        return objectnet_superclasses(place.root)


OBJECTNET = PublishedSet(
    "ObjectNet",
    "objectnet-1.0",
    "CC BY 4.0, and not for training",
    "objectnet.dev: objectnet-1.0.zip",
    {"test": {"layout": ObjectNet.name}},
    {"test": 50_273},
    "the red border of two pixels is cut off",
)

register_published(
    OBJECTNET,
    superclasses_of(
        OBJECTNET,
        "by its own mappings one class of ObjectNet, Bicycle (ImageNet's 444 and 671), lies in the nine superclasses; "
        "the paper does not say which classes it took",
    ),
)
