"""The table of published data sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from objectaware.data.backgrounds_challenge import VARIANTS


@dataclass(frozen=True)
class PublishedSet:
    """A data set that others published.

    Attributes:
        name: As in `datasets` of the paper's tables (`paper/tables/*.yaml`).
        folder: Where it lies under the data folder by default, as `jobs/recipes/base/*.yaml` have it.
        licence: Terms of use, in short; those of the source hold.
        source: Where to get it.
        parts: Fields of `DataConfig` other than `root` by part. A value that starts with `@data/` is a path under the
            data folder.
        num_images: Published number of images by part, where it is known.
    """

    name: str
    folder: str
    licence: str
    source: str
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    num_images: Mapping[str, int] = field(default_factory=dict)


_IMAGENET_TERMS = "ImageNet's terms of access: non-commercial research and education"

_COCO = PublishedSet(
    "COCO",
    "COCO",
    "annotations CC BY 4.0; pictures by their Flickr licences",
    "cocodataset.org: train2017.zip, val2017.zip, annotations_trainval2017.zip",
    {part: {"layout": "coco", "split": part} for part in ("train", "val")},
    {"train": 118_287, "val": 5_000},
)

_COCO_CROP = PublishedSet(
    "COCO-Crop",
    "COCO",
    _COCO.licence,
    "derived from COCO: " + _COCO.source,
    {part: {"layout": "coco-crop", "split": part} for part in ("train", "val")},
)

_IMAGENET_9 = PublishedSet(
    "ImageNet-9",
    "bg_challenge",
    _IMAGENET_TERMS,
    "github.com/MadryLab/backgrounds_challenge, release archive backgrounds_challenge_data.tar.gz (val); links of the "
    "training images are dead: `objectaware data build imagenet9` makes them of ImageNet",
    {part: {"layout": "backgrounds-challenge", "variant": "original", "split": part} for part in ("train", "val")},
    {"train": 45_405, "val": 4_050},
)

_BACKGROUNDS_CHALLENGE = PublishedSet(
    "Backgrounds Challenge",
    "bg_challenge",
    _IMAGENET_TERMS,
    "github.com/MadryLab/backgrounds_challenge, release archive backgrounds_challenge_data.tar.gz",
    {variant: {"layout": "backgrounds-challenge", "variant": variant, "split": "val"} for variant in VARIANTS},
    dict.fromkeys(VARIANTS, 4_050),
)

PUBLISHED_SETS: tuple[PublishedSet, ...] = (_COCO, _COCO_CROP, _IMAGENET_9, _BACKGROUNDS_CHALLENGE)
"""All of them, in the order in which they are listed."""
