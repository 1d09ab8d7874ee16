"""Sets of shifted images in ImageNet's form: ImageNet-Sketch, ImageNet-R, ImageNet-C and Stylized-ImageNet.

Each opens with the folder that its release unpacks to, the one above it, or the one that holds the class folders.
"""

from __future__ import annotations

from pathlib import Path

from objectaware.data.folder import ImageFolder
from objectaware.data.imagenet import load_wnid_folders
from objectaware.data.places import find_wnid_folder
from objectaware.data.variants import CORRUPTIONS


def load_sketch(root: str | Path) -> ImageFolder:
    """Opens ImageNet-Sketch: `sketch/<wnid>/*.JPEG`, 50,889 drawings of all 1,000 classes.

    Raises:
        InputError: There are no class folders, or one of them is malformed.
    """
    return load_wnid_folders(find_wnid_folder("imagenet_sketch", root, ["sketch", "imagenet-sketch/sketch", "."]))


def load_renditions(root: str | Path) -> ImageFolder:
    """Opens ImageNet-R: `imagenet-r/<wnid>/*.jpg`, 30,000 pictures of 200 classes, numbered as ImageNet's 1,000.

    Raises:
        InputError: There are no class folders, or one of them is malformed.
    """
    return load_wnid_folders(find_wnid_folder("imagenet_r", root, ["imagenet-r", "."]))


def load_stylized(root: str | Path, split: str) -> ImageFolder:
    """Opens Stylized-ImageNet: `{train,val}/<wnid>/*`, as its generator writes it.

    Raises:
        InputError: There are no class folders, or one of them is malformed.
    """
    return load_wnid_folders(find_wnid_folder("stylized_imagenet", root, [split, f"stylized-imagenet/{split}"]))


def load_corrupted(root: str | Path, variant: str) -> ImageFolder:
    """Opens one corruption of ImageNet-C: `<corruption>/<severity>/<wnid>/*.JPEG`, 50,000 images.

    The folder of the archive (`noise`, `blur`, `weather`, `digital`) may lie above the corruption's.

    Args:
        root: The folder.
        variant: One of `CORRUPTED_VARIANTS`.

    Raises:
        InputError: There are no class folders, or one of them is malformed.
    """
    corruption, _, severity = variant.rpartition("-")
    kind = next(kind for kind, names in CORRUPTIONS.items() if corruption in names)
    places = [f"{corruption}/{severity}", f"{kind}/{corruption}/{severity}"]
    return load_wnid_folders(
        find_wnid_folder("imagenet_c", root, [*places, *(f"imagenet-c/{name}" for name in places)])
    )
