"""A folder of images as a data set."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from objectaware.data.images import IMAGE_SUFFIXES, read_image
from objectaware.errors import InputError


def list_image_ids(root: str | Path) -> list[str]:
    """List the images under a folder, at any depth.

    Files are told by their suffix (`IMAGE_SUFFIXES`, in either case). Hidden files and folders are skipped,
    and with them the `._*` companions that macOS leaves. Links to folders are followed unless they lead back
    to a folder above them. A link whose target is missing is listed, so that reading it can fail visibly.

    Args:
        root: The folder.

    Returns:
        Paths relative to `root` with forward slashes, sorted.

    Raises:
        InputError: `root` is no folder or holds no image, a folder in it cannot be opened, or a name is not
            UTF-8, so that no mask store could hold it.
    """
    root = Path(root)
    if not root.is_dir():
        raise InputError("images", root, "is not an existing folder", "Give a folder that holds images.")
    image_ids = sorted(_walk(root, "", frozenset()))
    if not image_ids:
        remedy = f"Give a folder with files that end in {', '.join(IMAGE_SUFFIXES)}."
        raise InputError("images", root, "holds no image", remedy)
    for image_id in image_ids:
        if image_id.encode(errors="replace").decode() != image_id:
            name = f"{root}/{image_id!a}"
            raise InputError("images", name, "has a name that is not UTF-8", "Rename it.")
    return image_ids


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
        labels: A class index an image, from 0 to `len(class_names) - 1`; kept as an int64 array.
        class_names: Names of the classes, by index.

    Raises:
        InputError: An id, which may come from somebody else's list, leads out of the folder.
    """

    def __init__(
        self,
        root: str | Path,
        image_ids: Sequence[str],
        labels: Sequence[int] | NDArray[np.int64] | None = None,
        class_names: Sequence[str] = (),
    ) -> None:
        self.root = Path(root).absolute()
        self.image_ids = list(image_ids)
        for image_id in self.image_ids:
            refuse_escape(image_id)
        self.labels = None if labels is None else np.asarray(labels, dtype=np.int64)
        self.class_names = tuple(class_names)
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
        return ImageFolder(self.root, [self.image_ids[place] for place in places], labels, names)

    @classmethod
    def scan(cls, root: str | Path) -> ImageFolder:
        """Take every image under a folder, at any depth, without labels.

        Raises:
            InputError: See `list_image_ids`.
        """
        return cls(root, list_image_ids(root))

    @classmethod
    def from_classes(cls, root: str | Path) -> ImageFolder:
        """Take a folder that holds a folder a class, as torchvision's `ImageFolder` does.

        Classes are numbered in the order of their folders' names. Images that lie directly in `root` belong
        to no class and are left out.

        Raises:
            InputError: See `list_image_ids`; or there is no class folder, or one of them holds no image.
        """
        image_ids = [image_id for image_id in list_image_ids(root) if "/" in image_id]
        class_of_image = [image_id.split("/", 1)[0] for image_id in image_ids]
        folders = [entry for entry in Path(root).iterdir() if entry.is_dir() and entry.name[0] != "."]
        if not folders:
            remedy = "Put the images of each class in a folder of its own."
            raise InputError("images", root, "holds no class folders", remedy)
        class_names = sorted(folder.name for folder in folders)
        empty = sorted(set(class_names) - set(class_of_image))
        if empty:
            problem = "is a class folder that holds no image"
            raise InputError("images", Path(root, empty[0]), problem, "Put images in it, or remove it.")
        index_of_class = {name: index for index, name in enumerate(class_names)}
        return cls(root, image_ids, [index_of_class[name] for name in class_of_image], class_names)


def _walk(folder: Path, prefix: str, ancestors: frozenset[tuple[int, int]]) -> Iterator[str]:
    status = folder.stat()
    identity = (status.st_dev, status.st_ino)
    if identity in ancestors:
        return
    try:
        entries = list(os.scandir(folder))
    except PermissionError as error:
        remedy = "Make it readable, or move it elsewhere."
        raise InputError("images", folder, "cannot be opened", remedy) from error
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _walk(Path(entry.path), f"{prefix}{entry.name}/", ancestors | {identity})
        elif entry.name.lower().endswith(IMAGE_SUFFIXES) and _is_file_or_broken_link(entry):
            yield prefix + entry.name


def _is_file_or_broken_link(entry: os.DirEntry[str]) -> bool:
    # Anything else (a pipe, a socket) would block its reader for ever.
    return entry.is_file() or (entry.is_symlink() and not Path(entry.path).exists())
