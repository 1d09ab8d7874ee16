"""Parts of a data set, as lists of image ids in a file.

A list is UTF-8 text with one id a line: the image's path relative to the data set's folder, as the data set names it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from objectaware.data.folder import ImageFolder
from objectaware.data.storage import Storage
from objectaware.errors import InputError


def draw_subset(image_ids: Sequence[str], fraction: float, seed: int) -> list[str]:
    """Draws images at random, without regard to their classes.

    That is how the paper's tenth of ImageNet was drawn ("we randomly choose 10% of samples", appendix on the
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
    """Writes a list; a file that exists is replaced.

    Raises:
        InputError: An id has a line break in it.
    """
    for image_id in image_ids:
        if "\n" in image_id:
            raise InputError("images", repr(image_id), "has a line break in its name", "Rename it.")
    storage, name = Storage.from_uri(address).split()
    storage.write_bytes(name, "".join(f"{image_id}\n" for image_id in image_ids).encode())


def restrict(images: ImageFolder, address: str) -> ImageFolder:
    """Takes the images that a list names; their order stays the data set's.

    Args:
        images: The data set.
        address: Path or URI of the list.

    Returns:
        The images with their labels; class names and root are those of the whole.

    Raises:
        InputError: The list is missing or empty, names an image twice, or names one that the data set does not have.
    """
    wanted = _read_list(address)
    places = [index for index, image_id in enumerate(images.image_ids) if image_id in wanted]
    if len(places) < len(wanted):
        missing = min(wanted.difference(images.image_ids))
        remedy = "A list holds paths relative to that folder, as objectaware data subset writes them."
        raise InputError("subset", address, f"names {missing}, which is not in {images.root}", remedy)
    return images.select(np.array(places, dtype=np.int64))


def _read_list(address: str) -> set[str]:
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
    if len(set(lines)) < len(lines):
        raise InputError("subset", address, "names an image twice", "Leave each line in once.")
    return set(lines)
