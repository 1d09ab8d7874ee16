"""Food-101, whose parts are lists of image names."""

from __future__ import annotations

from objectaware.data.dataset import Dataset, PublishedSet
from objectaware.data.folder import ImageFolder
from objectaware.data.user_files import Release

_RELEASE = Release("food-101", ("food-101",), ("meta/classes.txt", "images"))


class Food101(Dataset):
    """Food-101: `images/<class>/<number>.jpg` and `meta/{classes,train,test}.txt`.

    Its parts have 750 and 250 images of each class. Classes are numbered in the order of their names.
    """

    name = "food-101"
    content = "images/<class>/*.jpg and meta/{classes,train,test}.txt"
    labels = "class"
    splits = ("train", "test")

    def open_images(self) -> ImageFolder:
        """List the images of a part. A list that names an image of an unknown class is refused."""
        base = _RELEASE.base(self.root, f"meta/{self.split}.txt")
        class_names = sorted(_RELEASE.lines(base / "meta" / "classes.txt"))
        label_of_class = {name: label for label, name in enumerate(class_names)}
        path = base / "meta" / f"{self.split}.txt"
        names = _RELEASE.lines(path)
        unknown = next((name for name in names if name.partition("/")[0] not in label_of_class), None)
        if unknown is not None:
            raise _RELEASE.malformed(path, f"names {unknown}, whose class is not in classes.txt")
        labels = [label_of_class[name.partition("/")[0]] for name in names]
        return ImageFolder(base / "images", [f"{name}.jpg" for name in names], labels, class_names)


PublishedSet(
    "Food-101",
    "food-101",
    "pictures of Foodspotting, which do not belong to its authors; scientific fair use",
    "torchvision.datasets.Food101 downloads it (food-101.tar.gz of ETH Zürich's computer vision lab)",
    {part: {"layout": Food101.name, "split": part} for part in Food101.splits},
    {"train": 75_750, "test": 25_250},
)
