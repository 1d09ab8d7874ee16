"""SI-Score: objects pasted onto backgrounds in many sizes, places and angles, one folder per class, named in words.

The store's prefixes are `object_size`, `object_location` and `object_rotation`; the archives beside them unpack to
`area`, `location20_area02_min0pc` and `rotation`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from objectaware.data.folder import ImageFolder
from objectaware.data.layouts import Place, PublishedSet, register_layout, register_published
from objectaware.data.sets.imagenet import WnidFolders, imagenet_wnids, superclasses_of
from objectaware.data.user_files import is_folder, missing_classes, subfolders
from objectaware.errors import InputError

FACTORS = ("size", "location", "rotation")
"""The factors of which one varies."""
_UNPACKED = {"size": "area", "location": "location20_area02_min0pc", "rotation": "rotation"}

# Source: `label_str_to_imagenet_classes.py` of google-research/si-score at abd52d6, made by hand there.
_CLASSES = (
    "ostrich 9, magpie 18, kite 21, goose 99, koala 105, sea lion 150, lynx 287, cheetah 293, brown bear 294, "
    "polar bear 296, starfish 327, hamster 333, hedgehog 334, zebra 340, pig 341, hippopotamus 344, otter 360, "
    "skunk 361, armadillo 363, red panda 387, ambulance 407, backpack 414, balance beam 416, band-aid 419, "
    "lighthouse 437, beaker 438, binoculars 447, taxi 468, candle 470, canoe 472, cello 486, mobile phone 487, "
    "cocktail shaker 503, cowboy hat 515, diaper 529, digital clock 530, dumbbell 543, envelope 549, filing "
    "cabinet 553, flute 558, frying pan 567, golf ball 574, hair spray 585, hammer 587, hair dryer 589, harmonica "
    "593, ipod 605, jeans 608, ladle 618, laptop 620, limousine 627, lipstick 629, maracas 641, measuring cup "
    "647, microwave oven 651, miniskirt 655, missile 657, mixing bowl 659, computer mouse 673, paper towel 700, "
    "pencil case 709, pillow 721, pitcher (container) 725, plastic bag 728, billiard table 736, flowerpot 738, "
    "printer 742, punching bag 747, racket 752, remote control 761, eraser 767, rugby ball 768, ruler 769, "
    "saxophone 776, screwdriver 784, seat belt 785, snowmobile 802, soap dispenser 804, sock 806, sombrero 808, "
    "spatula 813, studio couch 831, light switch 844, teapot 849, teddy bear 850, tennis ball 852, toaster 859, "
    "torch 862, vase 883, volleyball (ball) 890, washing machine 897, wok 909, traffic light 920, guacamole 924, "
    "bagel 931, pretzel 932, hot dog 934, broccoli 937, zucchini 939, cucumber 943, artichoke 944, bell pepper "
    "945, mushroom 947, strawberry 949, orange 950, lemon 951, common fig 952, banana 954, pomegranate 957, pizza "
    "963, burrito 965, toilet paper 999"
)
_CLASS_OF_NAME = {name: int(number) for name, number in (part.rsplit(" ", 1) for part in _CLASSES.split(", "))}
"""ImageNet's class of each folder's name."""


def load_si_score(root: str | Path, variant: str) -> ImageFolder:
    """Open the images in which one factor varies.

    Args:
        root: The folder.
        variant: One of `FACTORS`.

    Returns:
        The images with the numbers of ImageNet's classes, 0 to 999; class names are wnids.

    Raises:
        InputError: There are no class folders, or a folder's name is none of the data set's classes.
    """
    images = ImageFolder.from_classes(_find_folder(root, variant))
    for name in images.class_names:
        if name not in _CLASS_OF_NAME:
            remedy = "Leave the data set's own folders there alone."
            raise InputError("si_score", images.root / name, "is none of SI-Score's classes", remedy)
    assert images.labels is not None
    numbers = np.array([_CLASS_OF_NAME[name] for name in images.class_names], dtype=np.int64)
    return ImageFolder(images.root, images.image_ids, numbers[images.labels], imagenet_wnids())


def _find_folder(root: str | Path, variant: str) -> Path:
    prefix, unpacked = f"object_{variant}", _UNPACKED[variant]
    places = list(dict.fromkeys([prefix, f"{prefix}/{unpacked}", unpacked, variant, f"{variant}/{unpacked}"]))
    for place in places:
        folder = Path(root, place)
        if is_folder(folder, field="si_score") and not _CLASS_OF_NAME.keys().isdisjoint(
            subfolders(folder, field="si_score")
        ):
            return folder
    raise missing_classes("si_score", root, places, "ambulance")


@register_layout
class SiScore(WnidFolders):
    """SI-Score."""

    name = "si-score"
    content = "object_{size,location,rotation}/<class>/*.jpg"
    variants = FACTORS

    def open(self, place: Place) -> ImageFolder:
        """List the pictures in which one factor varies."""
        return load_si_score(place.root, place.variant)


SI_SCORE = PublishedSet(
    "SI-Score",
    "si-score",
    "Apache 2.0 for the code; objects of Open Images (Creative Commons), backgrounds of Pexels (its licence)",
    "s3://si-score-dataset/object_{size,location,rotation} (github.com/google-research/si-score)",
    {variant: {"layout": SiScore.name, "variant": variant} for variant in FACTORS},
)

register_published(
    SI_SCORE,
    superclasses_of(SI_SCORE, "its classes cover four of the nine: bird, wheeled vehicle, carnivore, instrument"),
)
