"""Opening data sets by the layout they lie in."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from objectaware.data.backgrounds_challenge import load_variant
from objectaware.data.coco import load_coco
from objectaware.data.crops import CroppedObjects
from objectaware.data.folder import ImageFolder
from objectaware.data.shards import PackedImages
from objectaware.data.subset import restrict
from objectaware.errors import InputError

Split = Literal["train", "val"]


def require_root(root: str, layout: str) -> None:
    """Refuses at once a data set that is not there at all; `open_images` looks at the rest, which may take minutes.

    Args:
        root: The folder, or for `shards` an address.
        layout: As `open_images`.

    Raises:
        InputError: It is not there.
    """
    if layout == "shards":
        PackedImages.describe(root)
    elif not Path(root).is_dir():
        raise InputError("data.root", root, "is not an existing folder", "Give the folder of the images.")


def open_images(
    root: str | Path,
    layout: str,
    *,
    variant: str | None = None,
    split: Split | None = None,
    subset: str | None = None,
    shuffle_window: int = 1,
) -> ImageFolder | CroppedObjects | PackedImages:
    """Opens a set of images.

    Args:
        root: The folder.
        layout: `folder`, `class-folders`, `backgrounds-challenge`, `coco`, `coco-crop` or `shards`.
        variant: Variant of the Backgrounds Challenge; `original` where none is given.
        split: `train` or `val`, for the published layouts.
        subset: Path or URI of a list of the images that count; all do where none is given. Not for `coco-crop` and
            `shards`.
        shuffle_window: Shards that training mixes, for the layout `shards`.

    Raises:
        InputError: Something is missing or malformed, or the layout is not known.
    """
    if layout == "shards":
        assert subset is None, "the images of a pack are no files"
        return PackedImages.open(str(root), window=shuffle_window)
    images = _open_whole(root, layout, variant, split)
    if subset is None:
        return images
    assert isinstance(images, ImageFolder), f"the images of the layout {layout} are no files"
    return restrict(images, subset)


def _open_whole(
    root: str | Path, layout: str, variant: str | None, split: Split | None
) -> ImageFolder | CroppedObjects:
    if layout == "folder":
        return ImageFolder.scan(root)
    if layout == "class-folders":
        return ImageFolder.from_classes(root)
    assert split is not None, f"the layout {layout} has splits"
    if layout == "backgrounds-challenge":
        return load_variant(root, variant or "original", split)
    if layout == "coco":
        return load_coco(root, split).images
    if layout == "coco-crop":
        return CroppedObjects(load_coco(root, split))
    raise InputError("layout", layout, "is not known", "Use one of the layouts in docs/data.md.")
