"""The table of published data sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from objectaware.data.backgrounds_challenge import VARIANTS
from objectaware.data.variants import CORRUPTED_VARIANTS, FACTORS


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
        note: What else a user must know, in a sentence.
    """

    name: str
    folder: str
    licence: str
    source: str
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    num_images: Mapping[str, int] = field(default_factory=dict)
    note: str = ""


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


_IMAGENET = PublishedSet(
    "ImageNet",
    "imagenet",
    _IMAGENET_TERMS,
    "image-net.org (ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar, ILSVRC2012_devkit_t12.tar.gz) or Kaggle's "
    "imagenet-object-localization-challenge; torchvision.datasets.ImageNet unpacks the archives",
    {part: {"layout": "imagenet", "split": part} for part in ("train", "val")} | _wsol("ILSVRC"),
    {"train": 1_281_167, "val": 50_000, "wsol-val": 10_000, "wsol-test": 50_000},
    "a tenth of train: objectaware data subset (docs/paper.md)",
)

_CIFAR_10 = PublishedSet(
    "CIFAR-10",
    "cifar-10-batches-py",
    "none stated; its authors ask to be cited",
    "torchvision.datasets.CIFAR10 downloads it (www.cs.toronto.edu/~kriz/cifar.html, the Python version)",
    {part: {"layout": "cifar-10", "split": part} for part in ("train", "test")},
    {"train": 50_000, "test": 10_000},
)

_CIFAR_100 = PublishedSet(
    "CIFAR-100",
    "cifar-100-python",
    _CIFAR_10.licence,
    "torchvision.datasets.CIFAR100 downloads it (www.cs.toronto.edu/~kriz/cifar.html, the Python version)",
    {part: {"layout": "cifar-100", "split": part} for part in ("train", "test")},
    {"train": 50_000, "test": 10_000},
)

_FOOD_101 = PublishedSet(
    "Food-101",
    "food-101",
    "pictures of Foodspotting, which do not belong to its authors; scientific fair use",
    "torchvision.datasets.Food101 downloads it (food-101.tar.gz of ETH Zürich's computer vision lab)",
    {part: {"layout": "food-101", "split": part} for part in ("train", "test")},
    {"train": 75_750, "test": 25_250},
)

_PETS = PublishedSet(
    "Oxford-IIIT Pets",
    "Pets",
    "CC BY-SA 4.0",
    "torchvision.datasets.OxfordIIITPet downloads it (www.robots.ox.ac.uk/~vgg/data/pets: images.tar.gz, "
    "annotations.tar.gz)",
    {part: {"layout": "oxford-iiit-pets", "split": part} for part in ("train", "test")},
    {"train": 3_680, "test": 3_669},
    "train is the list trainval",
)

_SKETCH = PublishedSet(
    "ImageNet-Sketch",
    "imagenet-sketch",
    "MIT for the code; drawings from the web, for research",
    "github.com/HaohanWang/ImageNet-Sketch",
    {"test": {"layout": "imagenet-sketch"}},
    {"test": 50_889},
)

_STYLIZED = PublishedSet(
    "Stylized-ImageNet",
    "stylized-imagenet",
    _IMAGENET_TERMS,
    "github.com/rgeirhos/Stylized-ImageNet, whose code makes it of ImageNet",
    {"test": {"layout": "stylized-imagenet", "split": "val"}},
    {"test": 50_000},
    "test is its val",
)

_RENDITIONS = PublishedSet(
    "ImageNet-R",
    "imagenet-r",
    "MIT for the code; pictures from the web, for research",
    "github.com/hendrycks/imagenet-r: imagenet-r.tar",
    {"test": {"layout": "imagenet-r"}},
    {"test": 30_000},
)

_CORRUPTED = PublishedSet(
    "ImageNet-C",
    "imagenet-c",
    "CC BY 4.0; the pictures by ImageNet's terms of access",
    "zenodo.org/records/2235448 (github.com/hendrycks/robustness): noise.tar, blur.tar, weather.tar, digital.tar",
    {variant: {"layout": "imagenet-c", "variant": variant} for variant in CORRUPTED_VARIANTS},
    dict.fromkeys(CORRUPTED_VARIANTS, 50_000),
    "without the four extra corruptions",
)

_OBJECTNET = PublishedSet(
    "ObjectNet",
    "objectnet-1.0",
    "CC BY 4.0, and not for training",
    "objectnet.dev: objectnet-1.0.zip",
    {"test": {"layout": "objectnet"}},
    {"test": 50_273},
    "the red border of two pixels is cut off",
)

_SI_SCORE = PublishedSet(
    "SI-Score",
    "si-score",
    "Apache 2.0 for the code; objects of Open Images (Creative Commons), backgrounds of Pexels (its licence)",
    "s3://si-score-dataset/object_{size,location,rotation} (github.com/google-research/si-score)",
    {variant: {"layout": "si-score", "variant": variant} for variant in FACTORS},
)

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


def _superclasses(whole: PublishedSet, note: str = "", num_images: int | None = None) -> PublishedSet:
    """The images of a set whose class is one of ImageNet-9's 370, labelled with the nine superclasses."""
    return replace(
        whole,
        name=f"{whole.name}-9",
        parts={part: {**fields, "classes": "imagenet-9"} for part, fields in whole.parts.items()},
        num_images={} if num_images is None else dict.fromkeys(whole.parts, num_images),
        note=note or whole.note,
    )


_NUM_IN_370_CLASSES = 18_500
"""Images of 370 classes where each has 50."""

PUBLISHED_SETS: tuple[PublishedSet, ...] = (
    _COCO,
    _COCO_CROP,
    _IMAGENET,
    _IMAGENET_9,
    _BACKGROUNDS_CHALLENGE,
    _CUB,
    _FLOWERS,
    _VOC,
    _OPENIMAGES,
    _CIFAR_10,
    _CIFAR_100,
    _FOOD_101,
    _PETS,
    _SKETCH,
    _superclasses(_SKETCH),
    _STYLIZED,
    _superclasses(_STYLIZED, num_images=_NUM_IN_370_CLASSES),
    _RENDITIONS,
    _superclasses(_RENDITIONS, "99 of its 200 classes are among the 370"),
    _CORRUPTED,
    _superclasses(_CORRUPTED, num_images=_NUM_IN_370_CLASSES),
    _OBJECTNET,
    _superclasses(
        _OBJECTNET,
        "by its own mappings one class of ObjectNet, Bicycle (ImageNet's 444 and 671), lies in the nine superclasses; "
        "the paper does not say which classes it took",
    ),
    _SI_SCORE,
    _superclasses(_SI_SCORE, "its classes cover four of the nine: bird, wheeled vehicle, carnivore, instrument"),
)
"""All of them, in the order in which they are listed."""
