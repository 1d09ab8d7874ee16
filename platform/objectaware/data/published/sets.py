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

_WSOL_METADATA = "@data/wsolevaluation/metadata"


def _wsol(name: str) -> dict[str, dict[str, str]]:
    """The parts that wsolevaluation has boxes or masks of."""
    return {
        f"wsol-{split}": {"layout": "wsolevaluation", "split": split, "metadata": f"{_WSOL_METADATA}/{name}"}
        for split in ("val", "test")
    }


_CUB = PublishedSet(
    "CUB-200-2011",
    "CUB_200_2011",
    "pictures by their Flickr licences: non-commercial research and education",
    "data.caltech.edu/records/65de6-vp158: CUB_200_2011.tgz, and segmentations.tgz into the same folder. redo-…: "
    "datasplits/cub/train_val_test_split.txt of github.com/mickaelChen/ReDO there, too. wsol-…: a clone of "
    "github.com/clovaai/wsolevaluation beside it; wsol-val: its CUBV2.tar into images",
    {split: {"layout": "cub", "split": split} for split in ("train", "test", "redo-train", "redo-val", "redo-test")}
    | _wsol("CUB"),
    {
        "train": 5_994,
        "test": 5_794,
        "redo-train": 10_000,
        "redo-val": 788,
        "redo-test": 1_000,
        "wsol-val": 1_000,
        "wsol-test": 5_794,
    },
)

_FLOWERS = PublishedSet(
    "Flowers102",
    "flowers102",
    "pictures by their owners' licences: research",
    "robots.ox.ac.uk/~vgg/data/flowers/102: 102flowers.tgz, imagelabels.mat, setid.mat (torchvision's Flowers102 "
    "downloads these), and 102segmentations.tgz for the masks",
    {
        split: {"layout": "flowers102", "split": split}
        for split in ("train", "val", "test", "redo-train", "redo-val", "redo-test")
    },
    {
        "train": 1_020,
        "val": 1_020,
        "test": 6_149,
        "redo-train": 6_149,
        "redo-val": 1_020,
        "redo-test": 1_020,
    },
)

_VOC = PublishedSet(
    "VOC2012",
    "VOCdevkit",
    "pictures by their Flickr licences",
    "host.robots.ox.ac.uk/pascal/VOC/voc2012: VOCtrainval_11-May-2012.tar (torchvision's VOCDetection downloads it)",
    {split: {"layout": "voc", "split": split} for split in ("val", "segmentation-val")},
    {"val": 5_823, "segmentation-val": 1_449},
)

_OPENIMAGES = PublishedSet(
    "OpenImages",
    "OpenImages",
    "pictures CC BY 2.0, annotations CC BY 4.0",
    "images and masks as github.com/clovaai/wsolevaluation links them, both into this folder; a clone of it beside it",
    _wsol("OpenImages"),
    {"wsol-val": 2_500, "wsol-test": 5_000},
)

PUBLISHED_SETS: tuple[PublishedSet, ...] = (
    _COCO,
    _COCO_CROP,
    _IMAGENET_9,
    _BACKGROUNDS_CHALLENGE,
    _CUB,
    _FLOWERS,
    _VOC,
    _OPENIMAGES,
)
"""All of them, in the order in which they are listed."""
