"""A folder of images as a data set."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from objectaware.data.images import IMAGE_SUFFIXES, read_image
from objectaware.data.places import is_folder, list_folder, subfolders
from objectaware.errors import InputError

_MAX_KINDS = 8
"""Kinds of files that a notice names."""


@dataclass(frozen=True)
class ImageListing:
    """What a folder holds.

    Attributes:
        image_ids: Paths of the images relative to the folder with forward slashes, sorted.
        left_out: How many other files there are of each kind, as `.heic` or `without suffix`.
    """

    image_ids: list[str]
    left_out: Counter[str]


def find_images(root: str | Path) -> ImageListing:
    """Find the images under a folder, at any depth.

    An image is told by its suffix (`IMAGE_SUFFIXES`, in either case). Hidden files and folders are skipped, and with
    them the `._*` companions that macOS leaves. Links to folders are followed unless they lead back to a folder above
    them. An entry that cannot be looked at, and a folder that cannot be listed, stands for the images that it hides:
    it is listed, so that reading it fails visibly. A link without a target is listed unless its suffix is that of
    another kind of file.

    Args:
        root: The folder.

    Raises:
        InputError: `root` is not a folder, cannot be listed or holds no image, or a name is not UTF-8, so that no
            mask store could hold it.
    """
    root = Path(root)
    if not is_folder(root, field="images"):
        raise InputError("images", root, "is not an existing folder", "Give a folder that holds images.")
    left_out: Counter[str] = Counter()
    entries = list_folder(root, field="images")
    image_ids = sorted(_walk(entries, "", frozenset([_identity(root.stat())]), left_out))
    if not image_ids:
        others = f" but {_listed(left_out)}" if left_out else ""
        remedy = f"Give a folder with files that end in {', '.join(IMAGE_SUFFIXES)}."
        raise InputError("images", root, f"holds no image{others}", remedy)
    for image_id in image_ids:
        if image_id.encode(errors="replace").decode() != image_id:
            name = f"{root}/{image_id!a}"
            raise InputError("images", name, "has a name that is not UTF-8", "Rename it.")
    return ImageListing(image_ids, left_out)


def list_image_ids(root: str | Path) -> list[str]:
    """Return the `image_ids` of `find_images`, which says what is listed and what is refused."""
    return find_images(root).image_ids


def refuse_escape(image_id: str) -> None:
    """Refuses an image id that leads out of its data set's folder.

    Raises:
        InputError: It is an absolute path, or one that goes up.
    """
    # Millions of ids are looked at: only those with a sign of it in full.
    if image_id.startswith("/") or "\0" in image_id or (".." in image_id and ".." in image_id.split("/")):
        remedy = "Name images by their paths in the folder."
        raise InputError("images", ascii(image_id), "leads out of the folder of images", remedy)


class ImageFolder:
    """Images in a folder, with labels where they are known.

    Args:
        root: The folder. Kept as an absolute path, since Ray's workers run in folders of their own.
        image_ids: Paths relative to `root` with forward slashes.
        labels: A class index for each image, from 0 to `len(class_names) - 1`; kept as an int64 array.
        class_names: Names of the classes, by index.
        notice: What the user should know of the folder, as a line; empty where there is nothing to say.

    Raises:
        InputError: An id, which may come from somebody else's list, leads out of the folder.
    """

    def __init__(
        self,
        root: str | Path,
        image_ids: Sequence[str],
        labels: Sequence[int] | NDArray[np.int64] | None = None,
        class_names: Sequence[str] = (),
        notice: str = "",
    ) -> None:
        self.root = Path(root).absolute()
        self.image_ids = list(image_ids)
        for image_id in self.image_ids:
            refuse_escape(image_id)
        self.labels = None if labels is None else np.asarray(labels, dtype=np.int64)
        self.class_names = tuple(class_names)
        self.notice = notice
        assert self.labels is None or self.labels.shape == (len(self.image_ids),), "one label an image"

    def __len__(self) -> int:
        return len(self.image_ids)

    def path(self, index: int) -> Path:
        """Return the absolute path of an image."""
        return self.root / self.image_ids[index]

    def read(self, index: int) -> NDArray[np.uint8]:
        """Read an image as 8-bit RGB of shape (H, W, 3).

        Raises:
            objectaware.data.images.UnreadableImage: The file gives no picture.
        """
        return read_image(self.path(index))

    def select(
        self,
        places: NDArray[np.int64],
        labels: NDArray[np.int64] | None = None,
        class_names: Sequence[str] | None = None,
    ) -> ImageFolder:
        """Takes some of the images, in a given order.

        Args:
            places: Their indices, (n,).
            labels: Labels to give them in place of their own, (n,).
            class_names: Names of the classes that such labels stand for.
        """
        if labels is None and self.labels is not None:
            labels = self.labels[places]
        names = self.class_names if class_names is None else class_names
        return ImageFolder(self.root, [self.image_ids[place] for place in places], labels, names, self.notice)

    @classmethod
    def scan(cls, root: str | Path) -> ImageFolder:
        """Take every image under a folder, at any depth, without labels.

        Raises:
            InputError: See `find_images`.
        """
        found = find_images(root)
        return cls(root, found.image_ids, notice=_notice(found.left_out))

    @classmethod
    def from_classes(cls, root: str | Path) -> ImageFolder:
        """Take a folder that holds one folder per class, as torchvision's `ImageFolder` does.

        Classes are numbered in the order of their folders' names. Images that lie directly in `root` belong
        to no class and are left out.

        Raises:
            InputError: See `find_images`; or there is no class folder, or one of them cannot be listed or holds no
                image.
        """
        found = find_images(root)
        image_ids = [image_id for image_id in found.image_ids if "/" in image_id]
        outside = {image_id for image_id in found.image_ids if "/" not in image_id}
        class_of_image = [image_id.split("/", 1)[0] for image_id in image_ids]
        class_names = sorted(subfolders(root, field="images"))
        if not class_names:
            remedy = "Put the images of each class in a folder of its own."
            raise InputError("images", root, "holds no class folders", remedy)
        for name in class_names:
            if name in outside:
                list_folder(Path(root, name), field="images")  # says why it cannot be listed
        empty = sorted(set(class_names) - set(class_of_image))
        if empty:
            problem = "is a class folder that holds no image"
            raise InputError("images", Path(root, empty[0]), problem, "Put images in it, or remove it.")
        index_of_class = {name: index for index, name in enumerate(class_names)}
        labels = [index_of_class[name] for name in class_of_image]
        others = Counter(f"{_suffix(name)} outside the class folders" for name in outside)
        return cls(root, image_ids, labels, class_names, _notice(found.left_out + others))


def _walk(
    entries: Iterable[os.DirEntry[str]], prefix: str, above: frozenset[tuple[int, int]], left_out: Counter[str]
) -> Iterator[str]:
    """Yield the paths of the images among a folder's entries and below them, and count the other files.

    Args:
        entries: Of the folder.
        prefix: Path of the folder, with a slash at its end; empty for the root.
        above: The folder itself and those that it lies in.
        left_out: Where the other files are counted.
    """
    for entry in entries:
        path = prefix + entry.name
        if entry.name.startswith("."):
            continue
        kind = _kind(entry)
        if kind == "image":
            yield path
        elif kind == "other":
            left_out[_suffix(entry.name)] += 1
        else:
            yield from _walk_folder(entry, path, above, left_out)


def _walk_folder(
    entry: os.DirEntry[str], path: str, above: frozenset[tuple[int, int]], left_out: Counter[str]
) -> Iterator[str]:
    try:
        identity = _identity(entry.stat())
        with os.scandir(entry.path) as inside:
            entries = list(inside)
    except OSError:
        yield path
        return
    if identity not in above:
        yield from _walk(entries, f"{path}/", above | {identity}, left_out)


def _kind(entry: os.DirEntry[str]) -> Literal["folder", "image", "other"]:
    is_named_so = entry.name.lower().endswith(IMAGE_SUFFIXES)
    try:
        if entry.is_dir():
            return "folder"
        if entry.is_file():
            return "image" if is_named_so else "other"
        entry.stat()
    except FileNotFoundError:  # a link to nothing, or a file that has just gone
        return "image" if is_named_so or not Path(entry.name).suffix else "other"
    except OSError:
        return "image"
    return "other"  # a pipe or a socket, which would block its reader forever


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _suffix(name: str) -> str:
    return Path(name).suffix.lower() or "without suffix"


def _listed(left_out: Counter[str]) -> str:
    """List how many files there are of each kind, the most frequent first."""
    kinds = [f"{number} {kind}" for kind, number in left_out.most_common(_MAX_KINDS)]
    rest = left_out.total() - sum(number for _, number in left_out.most_common(_MAX_KINDS))
    return ", ".join([*kinds, *([f"{rest} others"] if rest else [])])


def _notice(left_out: Counter[str]) -> str:
    if not left_out:
        return ""
    files = "1 file is" if left_out.total() == 1 else f"{left_out.total()} files are"
    return f"{files} left out: {_listed(left_out)}"
