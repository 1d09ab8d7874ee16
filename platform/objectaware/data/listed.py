"""Data sets whose parts are lists of image names: Food-101 and the Oxford-IIIT Pets."""

from __future__ import annotations

from pathlib import Path

from objectaware.data.folder import ImageFolder
from objectaware.data.places import find_place, read_lines
from objectaware.errors import InputError


def load_food(root: str | Path, split: str) -> ImageFolder:
    """Opens Food-101: `images/<class>/<number>.jpg` and `meta/{classes,train,test}.txt`.

    Args:
        root: The folder, or the one above `food-101`.
        split: `train` or `test`, 750 and 250 images of each class.

    Returns:
        The listed images; classes are numbered in the order of their names.

    Raises:
        InputError: A list is missing, or names an image of an unknown class.
    """
    base = find_place("food-101", root, [f"meta/{split}.txt", f"food-101/meta/{split}.txt"]).parents[1]
    class_names = sorted(read_lines("food-101", base / "meta" / "classes.txt"))
    label_of_class = {name: label for label, name in enumerate(class_names)}
    names = read_lines("food-101", base / "meta" / f"{split}.txt")
    classes = [name.partition("/")[0] for name in names]
    for name, its_class in zip(names, classes, strict=True):
        if its_class not in label_of_class:
            problem = f"names {name}, whose class is not in classes.txt"
            raise InputError("food-101", base / "meta" / f"{split}.txt", problem, "Extract the archive again.")
    labels = [label_of_class[its_class] for its_class in classes]
    return ImageFolder(base / "images", [f"{name}.jpg" for name in names], labels, class_names)


def load_pets(root: str | Path, split: str) -> ImageFolder:
    """Opens the Oxford-IIIT Pets: `images/<breed>_<number>.jpg` and `annotations/{trainval,test}.txt`.

    Args:
        root: The folder, or the one above `oxford-iiit-pet`.
        split: `train` (the list `trainval`, 3,680 images) or `test` (3,669).

    Returns:
        The listed images with their breeds, numbered as the lists do it, but from 0.

    Raises:
        InputError: A list is missing or malformed.
    """
    name = f"annotations/{'trainval' if split == 'train' else 'test'}.txt"
    path = find_place("pets", root, [name, f"oxford-iiit-pet/{name}"])
    stems: list[str] = []
    labels: list[int] = []
    breed_of_label: dict[int, str] = {}
    for line in read_lines("pets", path):
        if line.startswith("#"):
            continue
        stem, _, rest = line.partition(" ")
        number = rest.partition(" ")[0]
        breed = stem.rpartition("_")[0]
        if not number.isdecimal() or number == "0" or breed_of_label.setdefault(int(number) - 1, breed) != breed:
            problem = f"has a line of another form: {line}"
            raise InputError("pets", path, problem, "A line is <breed>_<number> <class> <species> <breed in species>.")
        stems.append(stem)
        labels.append(int(number) - 1)
    class_names = [breed_of_label.get(label, "") for label in range(max(breed_of_label, default=-1) + 1)]
    return ImageFolder(path.parents[1] / "images", [f"{stem}.jpg" for stem in stems], labels, class_names)
