"""ImageNet and the data sets that have its classes."""

from __future__ import annotations

from dataclasses import replace

from objectaware.data.backgrounds_challenge import VARIANTS
from objectaware.data.published.entry import PublishedSet, wsolevaluation_parts
from objectaware.data.variants import CORRUPTED_VARIANTS, FACTORS

_IMAGENET_TERMS = "ImageNet's terms of access: non-commercial research and education"

IMAGENET = PublishedSet(
    "ImageNet",
    "imagenet",
    _IMAGENET_TERMS,
    "image-net.org (ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar, ILSVRC2012_devkit_t12.tar.gz) or Kaggle's "
    "imagenet-object-localization-challenge; torchvision.datasets.ImageNet unpacks the archives",
    {part: {"layout": "imagenet", "split": part} for part in ("train", "val")} | wsolevaluation_parts("ILSVRC"),
    {"train": 1_281_167, "val": 50_000, "wsol-val": 10_000, "wsol-test": 50_000},
    "a tenth of train: objectaware data subset (docs/paper.md)",
)

IMAGENET_9 = PublishedSet(
    "ImageNet-9",
    "bg_challenge",
    _IMAGENET_TERMS,
    "github.com/MadryLab/backgrounds_challenge, release archive backgrounds_challenge_data.tar.gz (val); links of the "
    "training images are dead: `objectaware data build imagenet9` makes them of ImageNet",
    {part: {"layout": "backgrounds-challenge", "variant": "original", "split": part} for part in ("train", "val")},
    {"train": 45_405, "val": 4_050},
)

BACKGROUNDS_CHALLENGE = PublishedSet(
    "Backgrounds Challenge",
    "bg_challenge",
    _IMAGENET_TERMS,
    "github.com/MadryLab/backgrounds_challenge, release archive backgrounds_challenge_data.tar.gz",
    {variant: {"layout": "backgrounds-challenge", "variant": variant, "split": "val"} for variant in VARIANTS},
    dict.fromkeys(VARIANTS, 4_050),
)

SKETCH = PublishedSet(
    "ImageNet-Sketch",
    "imagenet-sketch",
    "MIT for the code; drawings from the web, for research",
    "github.com/HaohanWang/ImageNet-Sketch",
    {"test": {"layout": "imagenet-sketch"}},
    {"test": 50_889},
)

STYLIZED = PublishedSet(
    "Stylized-ImageNet",
    "stylized-imagenet",
    _IMAGENET_TERMS,
    "github.com/rgeirhos/Stylized-ImageNet, whose code makes it of ImageNet",
    {"test": {"layout": "stylized-imagenet", "split": "val"}},
    {"test": 50_000},
    "test is its val",
)

RENDITIONS = PublishedSet(
    "ImageNet-R",
    "imagenet-r",
    "MIT for the code; pictures from the web, for research",
    "github.com/hendrycks/imagenet-r: imagenet-r.tar",
    {"test": {"layout": "imagenet-r"}},
    {"test": 30_000},
)

CORRUPTED = PublishedSet(
    "ImageNet-C",
    "imagenet-c",
    "CC BY 4.0; the pictures by ImageNet's terms of access",
    "zenodo.org/records/2235448 (github.com/hendrycks/robustness): noise.tar, blur.tar, weather.tar, digital.tar",
    {variant: {"layout": "imagenet-c", "variant": variant} for variant in CORRUPTED_VARIANTS},
    dict.fromkeys(CORRUPTED_VARIANTS, 50_000),
    "without the four extra corruptions",
)

OBJECTNET = PublishedSet(
    "ObjectNet",
    "objectnet-1.0",
    "CC BY 4.0, and not for training",
    "objectnet.dev: objectnet-1.0.zip",
    {"test": {"layout": "objectnet"}},
    {"test": 50_273},
    "the red border of two pixels is cut off",
)

SI_SCORE = PublishedSet(
    "SI-Score",
    "si-score",
    "Apache 2.0 for the code; objects of Open Images (Creative Commons), backgrounds of Pexels (its licence)",
    "s3://si-score-dataset/object_{size,location,rotation} (github.com/google-research/si-score)",
    {variant: {"layout": "si-score", "variant": variant} for variant in FACTORS},
)


def superclasses_of(whole: PublishedSet, note: str = "", num_images: int | None = None) -> PublishedSet:
    """The images of a set whose class is one of ImageNet-9's 370, labelled with the nine superclasses."""
    return replace(
        whole,
        name=f"{whole.name}-9",
        parts={part: {**fields, "classes": "imagenet-9"} for part, fields in whole.parts.items()},
        num_images={} if num_images is None else dict.fromkeys(whole.parts, num_images),
        note=note or whole.note,
    )


NUM_IN_370_CLASSES = 18_500
"""Images of 370 classes where each has 50."""
