"""ImageNet's 1,000 classes and the nine superclasses of ImageNet-9 among them.

Classes are numbered as everywhere: in the order of their WordNet ids (wnids), from 0.

Source:
    `in_to_in9.json` of MadryLab/backgrounds_challenge at 46d224b, a class number to 0–8 or -1; here as ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

SUPERCLASSES = (
    "00_dog",
    "01_bird",
    "02_wheeled vehicle",
    "03_reptile",
    "04_carnivore",
    "05_insect",
    "06_musical instrument",
    "07_primate",
    "08_fish",
)
"""Names of the nine, by label: those of the Backgrounds Challenge's folders."""

_CLASSES = (
    "151-170 173-268",
    "7-24 87-100 127-146",
    "407-408 428 436 444 468 511 547 555 561 565 569 573 586 603 609 612 627 656 661 665 670-671 675 690 705 717 734 "
    "751 757 791 802-803 817 820 829 847 864 866-867 870 880",
    "33-68",
    "269-280 286-299 356-362 387-388",
    "300-326",
    "401-402 420 432 486 494 513 541 546 558 566 577 579 593-594 641-642 683-684 687 699 776 822 875 881 889",
    "365-384",
    "0-6 389-397",
)


@cache
def imagenet_wnids() -> tuple[str, ...]:
    """The wnids of ImageNet's classes, by number."""
    return tuple(files("objectaware.data").joinpath("imagenet_wnids.txt").read_text().split())


@cache
def superclass_of_class() -> NDArray[np.int64]:
    """The superclass of each of ImageNet's classes, (1000,): 0 to 8, or -1 for the 630 that belong to none."""
    superclasses = np.full(len(imagenet_wnids()), -1, dtype=np.int64)
    for superclass, ranges in enumerate(_CLASSES):
        for part in ranges.split():
            first, _, last = part.partition("-")
            superclasses[int(first) : int(last or first) + 1] = superclass
    superclasses.flags.writeable = False  # shared by all callers
    return superclasses


def common_superclass(classes: Sequence[int]) -> int:
    """The superclass that all of some of ImageNet's classes have in common; -1 where there is none."""
    found = {int(superclass_of_class()[number]) for number in classes}
    return found.pop() if len(found) == 1 else -1
