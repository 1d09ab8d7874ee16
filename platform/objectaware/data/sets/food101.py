"""Food-101, whose parts are lists of image names."""

from __future__ import annotations

from pathlib import Path

from objectaware.data.folder import ImageFolder
from objectaware.data.layouts import Layout, Place, PublishedSet, register_layout, register_published
from objectaware.data.user_files import EXTRACTED, find_base, read_lines
from objectaware.errors import InputError


def load_food(root: str | Path, split: str) -> ImageFolder:
    """Open Food-101: `images/<class>/<number>.jpg` and `meta/{classes,train,test}.txt`.

    Args:
        root: The folder, or the one above `food-101`.
        split: `train` or `test`, 750 and 250 images of each class.

    Returns:
        The listed images; classes are numbered in the order of their names.

    Raises:
        InputError: A list is missing, or names an image of an unknown class.
    """
    needed = [f"meta/{split}.txt", "meta/classes.txt", "images"]
    base = find_base(root, ["food-101"], needed, field="food-101", remedy=EXTRACTED)
    class_names = sorted(read_lines(base / "meta" / "classes.txt", field="food-101", remedy=EXTRACTED))
    label_of_class = {name: label for label, name in enumerate(class_names)}
    names = read_lines(base / "meta" / f"{split}.txt", field="food-101", remedy=EXTRACTED)
    classes = [name.partition("/")[0] for name in names]
    for name, its_class in zip(names, classes, strict=True):
        if its_class not in label_of_class:
            problem = f"names {name}, whose class is not in classes.txt"
            raise InputError("food-101", base / "meta" / f"{split}.txt", problem, "Extract the archive again.")
    labels = [label_of_class[its_class] for its_class in classes]
    return ImageFolder(base / "images", [f"{name}.jpg" for name in names], labels, class_names)


@register_layout
class Food101(Layout):
    """Food-101."""

    name = "food-101"
    content = "images/<class>/*.jpg and meta/{classes,train,test}.txt"
    labels = "class"
    splits = ("train", "test")

    def open(self, place: Place) -> ImageFolder:
        """List the images of a part."""
        return load_food(place.root, place.split)


register_published(
    PublishedSet(
        "Food-101",
        "food-101",
        "pictures of Foodspotting, which do not belong to its authors; scientific fair use",
        "torchvision.datasets.Food101 downloads it (food-101.tar.gz of ETH Zürich's computer vision lab)",
        {part: {"layout": Food101.name, "split": part} for part in Food101.splits},
        {"train": 75_750, "test": 25_250},
    )
)
