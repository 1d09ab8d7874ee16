"""The Oxford-IIIT Pets, whose parts are lists of image names."""

from __future__ import annotations

from objectaware.data.dataset import Dataset, PublishedSet
from objectaware.data.folder import ImageFolder
from objectaware.data.user_files import Release
from objectaware.errors import InputError

_RELEASE = Release("pets", ("oxford-iiit-pet",), ("images",))


class Pets(Dataset):
    """The Oxford-IIIT Pets: `images/<breed>_<number>.jpg` and `annotations/{trainval,test}.txt`.

    The part `train` is the list `trainval`. Breeds are numbered as the lists do it, but from 0.
    """

    name = "oxford-iiit-pets"
    content = "images/*.jpg and annotations/{trainval,test}.txt"
    labels = "breed"
    splits = ("train", "test")

    def open_images(self) -> ImageFolder:
        """List the images of a part."""
        name = f"annotations/{'trainval' if self.split == 'train' else 'test'}.txt"
        base = _RELEASE.base(self.root, name)
        stems: list[str] = []
        labels: list[int] = []
        breed_of_label: dict[int, str] = {}
        for line in _RELEASE.lines(base / name):
            if line.startswith("#"):
                continue
            stem, _, rest = line.partition(" ")
            number = rest.partition(" ")[0]
            breed = stem.rpartition("_")[0]
            if not number.isdecimal() or number == "0" or breed_of_label.setdefault(int(number) - 1, breed) != breed:
                remedy = "A line is <breed>_<number> <class> <species> <breed in species>."
                raise InputError("pets", base / name, f"has a line of another form: {line}", remedy)
            stems.append(stem)
            labels.append(int(number) - 1)
        class_names = [breed_of_label.get(label, "") for label in range(max(breed_of_label, default=-1) + 1)]
        return ImageFolder(base / "images", [f"{stem}.jpg" for stem in stems], labels, class_names)


PublishedSet(
    "Oxford-IIIT Pets",
    "Pets",
    "CC BY-SA 4.0",
    "torchvision.datasets.OxfordIIITPet downloads it (www.robots.ox.ac.uk/~vgg/data/pets: images.tar.gz, "
    "annotations.tar.gz)",
    {part: {"layout": Pets.name, "split": part} for part in Pets.splits},
    {"train": 3_680, "test": 3_669},
    "train is the list trainval",
)
