"""Sets of shifted images in ImageNet's form: ImageNet-Sketch, ImageNet-R, ImageNet-C and Stylized-ImageNet.

Each opens with the folder that its release unpacks to, the one above it, or the one that holds the class folders.
"""

from __future__ import annotations

from pathlib import Path

from objectaware.data.folder import ImageFolder
from objectaware.data.layouts import Place, PublishedSet, register_layout, register_published
from objectaware.data.sets.imagenet import (
    IMAGENET_TERMS,
    NUM_IN_370_CLASSES,
    WnidFolders,
    load_wnid_folders,
    superclasses_of,
)
from objectaware.data.user_files import find_wnid_folder

CORRUPTIONS = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
}
"""The corruptions of ImageNet-C by kind, each in five severities; the archives are named by the kind."""

CORRUPTED_VARIANTS = tuple(
    f"{corruption}-{severity}" for kind in CORRUPTIONS.values() for corruption in kind for severity in range(1, 6)
)
"""Variants of ImageNet-C, such as `gaussian_noise-3`."""


def load_sketch(root: str | Path) -> ImageFolder:
    """Open ImageNet-Sketch: `sketch/<wnid>/*.JPEG`, 50,889 drawings of all 1,000 classes.

    Raises:
        InputError: There are no class folders, or one of them is malformed.
    """
    return load_wnid_folders(find_wnid_folder("imagenet_sketch", root, ["sketch", "imagenet-sketch/sketch", "."]))


def load_renditions(root: str | Path) -> ImageFolder:
    """Open ImageNet-R: `imagenet-r/<wnid>/*.jpg`, 30,000 pictures of 200 classes, numbered as ImageNet's 1,000.

    Raises:
        InputError: There are no class folders, or one of them is malformed.
    """
    return load_wnid_folders(find_wnid_folder("imagenet_r", root, ["imagenet-r", "."]))


def load_stylized(root: str | Path, split: str) -> ImageFolder:
    """Open Stylized-ImageNet: `{train,val}/<wnid>/*`, as its generator writes it.

    Raises:
        InputError: There are no class folders, or one of them is malformed.
    """
    return load_wnid_folders(find_wnid_folder("stylized_imagenet", root, [split, f"stylized-imagenet/{split}"]))


def load_corrupted(root: str | Path, variant: str) -> ImageFolder:
    """Open one corruption of ImageNet-C: `<corruption>/<severity>/<wnid>/*.JPEG`, 50,000 images.

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


@register_layout
class Sketch(WnidFolders):
    """ImageNet-Sketch."""

    name = "imagenet-sketch"
    content = "sketch/<wnid>/*.JPEG"

    def open(self, place: Place) -> ImageFolder:
        """List the drawings."""
        return load_sketch(place.root)


@register_layout
class Renditions(WnidFolders):
    """ImageNet-R."""

    name = "imagenet-r"
    content = "imagenet-r/<wnid>/*.jpg"

    def open(self, place: Place) -> ImageFolder:
        """List the pictures."""
        return load_renditions(place.root)


@register_layout
class Corrupted(WnidFolders):
    """ImageNet-C."""

    name = "imagenet-c"
    content = "<corruption>/<severity>/<wnid>/*.JPEG, also below {noise,blur,weather,digital}"
    variants = CORRUPTED_VARIANTS

    def open(self, place: Place) -> ImageFolder:
        """List the pictures of a corruption."""
        return load_corrupted(place.root, place.variant)


@register_layout
class Stylized(WnidFolders):
    """Stylized-ImageNet."""

    name = "stylized-imagenet"
    content = "{train,val}/<wnid>/*"
    splits = ("train", "val")

    def open(self, place: Place) -> ImageFolder:
        """List the pictures of a split."""
        return load_stylized(place.root, place.split)


SKETCH = PublishedSet(
    "ImageNet-Sketch",
    "imagenet-sketch",
    "MIT for the code; drawings from the web, for research",
    "github.com/HaohanWang/ImageNet-Sketch",
    {"test": {"layout": Sketch.name}},
    {"test": 50_889},
)

STYLIZED = PublishedSet(
    "Stylized-ImageNet",
    "stylized-imagenet",
    IMAGENET_TERMS,
    "github.com/rgeirhos/Stylized-ImageNet, whose code makes it of ImageNet",
    {"test": {"layout": Stylized.name, "split": "val"}},
    {"test": 50_000},
    "test is its val",
)

RENDITIONS = PublishedSet(
    "ImageNet-R",
    "imagenet-r",
    "MIT for the code; pictures from the web, for research",
    "github.com/hendrycks/imagenet-r: imagenet-r.tar",
    {"test": {"layout": Renditions.name}},
    {"test": 30_000},
)

CORRUPTED = PublishedSet(
    "ImageNet-C",
    "imagenet-c",
    "CC BY 4.0; the pictures by ImageNet's terms of access",
    "zenodo.org/records/2235448 (github.com/hendrycks/robustness): noise.tar, blur.tar, weather.tar, digital.tar",
    {variant: {"layout": Corrupted.name, "variant": variant} for variant in CORRUPTED_VARIANTS},
    dict.fromkeys(CORRUPTED_VARIANTS, 50_000),
    "without the four extra corruptions",
)

register_published(
    SKETCH,
    superclasses_of(SKETCH),
    STYLIZED,
    superclasses_of(STYLIZED, num_images=NUM_IN_370_CLASSES),
    RENDITIONS,
    superclasses_of(RENDITIONS, "99 of its 200 classes are among the 370"),
    CORRUPTED,
    superclasses_of(CORRUPTED, num_images=NUM_IN_370_CLASSES),
)
