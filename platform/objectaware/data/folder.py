"""A folder of images as a data set: its images, their manifest, and parts of it.

A part is given by a list: UTF-8 text with one image id per line, the image's path relative to the data set's folder.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from objectaware.data.images import IMAGE_SUFFIXES, read_image
from objectaware.data.user_files import is_folder, list_folder, subfolders
from objectaware.errors import InputError

_MAX_KINDS = 8
"""Kinds of files that a notice names."""


def _find_images(root: str | Path) -> tuple[list[str], Counter[str]]:
    """Find the images under a folder, at any depth.

    An image is recognized by its suffix (`IMAGE_SUFFIXES`, in either case). Hidden files and folders are skipped,
    and with them the `._*` companions that macOS leaves. Links to folders are followed unless they lead back to a
    folder above them. An entry that cannot be examined, or a folder that cannot be listed, is listed in place of the
    images that it hides, so that reading it fails visibly. A link without a target is listed unless its suffix is that
    of another kind of file.

    Returns:
        Paths of the images relative to the folder with forward slashes, sorted; and how many other files there are of
        each kind, as `.heic` or `without suffix`.
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
    return image_ids, left_out


def refuse_escape(image_id: str) -> None:
    """Refuse an image id that leads out of its data set's folder.

    Raises:
        InputError: It is an absolute path, or one that goes up.
    """
    # There may be millions of ids: split only those that hold '..' at all.
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
        notice: A line about the folder for the user, or an empty one.

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
        assert self.labels is None or self.labels.shape == (len(self.image_ids),), "one label per image"

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

    def select(self, places: Sequence[int]) -> ImageFolder:
        """Take some of the images, by index, in a given order."""
        image_ids = [self.image_ids[place] for place in places]
        labels = None if self.labels is None else self.labels[list(places)]
        return ImageFolder(self.root, image_ids, labels, self.class_names, self.notice)

    @classmethod
    def scan(cls, root: str | Path) -> ImageFolder:
        """Take every image under a folder, at any depth, without labels.

        Raises:
            InputError: `root` is not a folder, cannot be listed or holds no image, or a name is not UTF-8, so that no
                mask store could hold it.
        """
        image_ids, left_out = _find_images(root)
        return cls(root, image_ids, notice=_notice(left_out))

    @classmethod
    def from_classes(cls, root: str | Path) -> ImageFolder:
        """Take a folder that holds one folder per class, as torchvision's `ImageFolder` does.

        Classes are numbered in the order of their folders' names. Images that lie directly in `root` belong
        to no class and are left out.

        Raises:
            InputError: As `scan`; or there is no class folder, or one of them cannot be listed or holds no image.
        """
        found, left_out = _find_images(root)
        image_ids = [image_id for image_id in found if "/" in image_id]
        outside = {image_id for image_id in found if "/" not in image_id}
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
        return cls(root, image_ids, labels, class_names, _notice(left_out + others))


def require_some_file(images: ImageFolder, *, named_by: Path, field: str) -> None:
    """Refuse a list of images if none of them is there; otherwise each missing image becomes a row with its reason.

    Args:
        images: The images.
        named_by: The file or folder that names them.
        field: Name of the data set, for the message.

    Raises:
        InputError: None is there, or their folder cannot be listed.
    """
    if not images.image_ids or any(_is_there(images.path(index)) for index in range(len(images))):
        return
    named = images.image_ids[0]
    others = f" and {len(images) - 1} more" if len(images) > 1 else ""
    problem = f"names {named}{others}, none of which is in {images.root}"
    base = re.split(r"[/\\]", named)[-1]
    if base != named and _is_there(images.root / base):
        remedy = f"Name it {base}, as that folder does."
    else:
        held = min((entry.name for entry in list_folder(images.root, field=field)), default=None)
        remedy = f"Name images by their paths in that folder, which holds {held or 'nothing'}."
    raise InputError(field, named_by, problem, remedy)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a link that no system follows
        return False


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
            try:
                identity = _identity(entry.stat())
                with os.scandir(entry.path) as inside:
                    entries_inside = list(inside)
            except OSError:  # reading it will say why
                yield path
                continue
            if identity not in above:
                yield from _walk(entries_inside, f"{path}/", above | {identity}, left_out)


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


MISSING = -1
"""Size and time of a file that cannot be looked at."""


@dataclass(frozen=True)
class Manifest:
    """The images of a data set, in order, with sizes and times that reveal whether a file has changed.

    Attributes:
        root: Folder of the data set, absolute.
        image_ids: Paths relative to `root`.
        sizes: Bytes of each image; `MISSING` where the file cannot be looked at.
        modified_ns: Time of the last change in nanoseconds since 1970; `MISSING` where the file cannot be looked at.
    """

    root: str
    image_ids: tuple[str, ...]
    sizes: tuple[int, ...]
    modified_ns: tuple[int, ...]

    @classmethod
    def of(cls, dataset: ImageFolder) -> Manifest:
        """Look at each file of a data set once."""
        states = [_size_and_time(dataset.path(index)) for index in range(len(dataset))]
        sizes, times = zip(*states, strict=True) if states else ((), ())
        return cls(str(dataset.root), tuple(dataset.image_ids), sizes, times)

    def __len__(self) -> int:
        return len(self.image_ids)

    def content_hash(self, verify: bool = False) -> str:
        """Hash names in order, sizes, and times of change. `root` is not part of the hash.

        Args:
            verify: Read every file and hash its content in place of its time. Copying or touching the files
                then changes nothing, and a change that kept a file's size and time is seen.

        Returns:
            SHA-256 as 64 hexadecimal digits.
        """
        digest = hashlib.sha256(b"content" if verify else b"modified")
        for image_id, size, modified in zip(self.image_ids, self.sizes, self.modified_ns, strict=True):
            mark = _hash_file(Path(self.root, image_id)) if verify else str(modified)
            # No file name holds a NUL character, so that fields cannot run into each other.
            digest.update(f"{image_id}\0{size}\0{mark}\0".encode())
        return digest.hexdigest()

    def groups(self, group_size: int = 64, seed: int = 0) -> list[NDArray[np.int64]]:
        """Cut a seeded permutation of the images into groups, the units of work, negatives and resuming.

        The paper takes negatives from batches of 64. The permutation keeps neighbours in file order, which
        are often of one class, from being each other's negatives (reference/official-implementation.md §3).

        Args:
            group_size: Images per group, at least 1.
            seed: Seed of the permutation, which is NumPy's with PCG64.

        Returns:
            Index arrays; every index from 0 to `len(self) - 1` is in exactly one. Only the last may be
            shorter.
        """
        assert group_size >= 1, group_size
        order = np.random.Generator(np.random.PCG64(seed)).permutation(len(self)).astype(np.int64)
        return [order[start : start + group_size] for start in range(0, len(order), group_size)]

    def negatives_filler(self, group_size: int = 64, seed: int = 0) -> NDArray[np.int64]:
        """Return the images that fill the last, short group's batch of negatives up to `group_size`.

        They come from the start of the first group and serve only as negatives: their own results come from
        the first group.

        Returns:
            Index array; empty where the last group is full, or the only one.
        """
        groups = self.groups(group_size, seed)
        if len(groups) < 2:
            return np.empty(0, dtype=np.int64)
        return groups[0][: group_size - len(groups[-1])]


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:  # such as a link without its target; reading the image will say so
        return MISSING, MISSING
    return status.st_size, status.st_mtime_ns


def _hash_file(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return str(MISSING)


def draw_subset(image_ids: Sequence[str], fraction: float, seed: int) -> list[str]:
    """Draw images at random, without regard to their classes.

    The paper's tenth of ImageNet was drawn so ("we randomly choose 10% of samples", appendix on the
    comparison with ImageNet-trained models); which images they were is not published.

    Args:
        image_ids: All images; their order matters.
        fraction: Share of them, above 0 and at most 1; the number of images is rounded.
        seed: Seed of NumPy's PCG64, whose permutation decides.

    Returns:
        The drawn images, in the order in which they were given.

    Raises:
        InputError: The fraction is out of range or leaves no image.
    """
    number = round(fraction * len(image_ids)) if 0 < fraction <= 1 else 0
    if number == 0:
        remedy = "Give a share such as 0.1."
        raise InputError("fraction", fraction, f"leaves no part of the {len(image_ids)} images", remedy)
    drawn = np.random.Generator(np.random.PCG64(seed)).permutation(len(image_ids))[:number]
    return [image_ids[index] for index in np.sort(drawn)]


def write_subset(address: str, image_ids: Sequence[str]) -> None:
    """Write a list; a file that exists is replaced.

    Raises:
        InputError: An id has a line break in it.
    """
    from objectaware.data.storage import Storage  # here, as it imports PyArrow

    for image_id in image_ids:
        if "\n" in image_id:
            raise InputError("images", repr(image_id), "has a line break in its name", "Rename it.")
    storage, name = Storage.from_uri(address).split()
    storage.write_bytes(name, "".join(f"{image_id}\n" for image_id in image_ids).encode())


def restrict(images: ImageFolder, address: str) -> ImageFolder:
    """Take the images that a list names; their order stays the data set's.

    Args:
        images: The data set.
        address: Path or URI of the list.

    Returns:
        The images with their labels; class names and root are those of the whole.

    Raises:
        InputError: The list is missing or empty, names an image twice, or names one that the data set does not have.
    """
    from objectaware.data.storage import Storage  # here, as it imports PyArrow

    storage, name = Storage.from_uri(address).split()
    remedy = "objectaware data subset writes such a list."
    try:
        text = storage.read_bytes(name).decode()
    except FileNotFoundError as error:
        raise InputError("subset", address, "does not exist", remedy) from error
    except UnicodeDecodeError as error:
        raise InputError("subset", address, "is not text in UTF-8", remedy) from error
    # Not splitlines, which would also break at rarer characters that a file's name may have.
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if line]
    if not lines:
        raise InputError("subset", address, "names no image", remedy)
    wanted = set(lines)
    if len(wanted) < len(lines):
        raise InputError("subset", address, "names an image twice", "Leave each line in once.")
    places = [index for index, image_id in enumerate(images.image_ids) if image_id in wanted]
    if len(places) < len(wanted):
        missing = min(wanted.difference(images.image_ids))
        remedy = "A list holds paths relative to that folder, as objectaware data subset writes them."
        raise InputError("subset", address, f"names {missing}, which is not in {images.root}", remedy)
    return images.select(places)
