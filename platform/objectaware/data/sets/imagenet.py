"""ImageNet (ILSVRC 2012), its classes, the nine superclasses of ImageNet-9 among them, and Tiny-ImageNet.

`train/<wnid>/*.JPEG`; `val/<wnid>/*.JPEG` or flat `val/ILSVRC2012_val_*.JPEG`, whose labels lie in
`LOC_val_solution.csv` (Kaggle's download) or in the development kit's `ILSVRC2012_validation_ground_truth.txt`,
numbered as its `meta.mat` says. Kaggle's `ILSVRC/Data/CLS-LOC` is found, too.

Classes are numbered as everywhere: in the order of their WordNet ids (wnids), from 0.

Source:
    `in_to_in9.json` of MadryLab/backgrounds_challenge at 46d224b maps each class number to 0–8 or -1;
    `label_str_to_imagenet_classes.py` of google-research/si-score at abd52d6, made by hand there, names SI-Score's.
    Both are columns of `imagenet_classes.txt`, behind the wnids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from objectaware.data.dataset import Dataset, OpenedImages, PublishedSet
from objectaware.data.folder import ImageFolder
from objectaware.data.sets.wsolevaluation import published_parts
from objectaware.data.truth import GroundTruth, Turns
from objectaware.data.user_files import Release, is_file, list_folder, subfolders
from objectaware.errors import InputError

_NINE = ("dog", "bird", "wheeled vehicle", "reptile", "carnivore", "insect", "musical instrument", "primate", "fish")
SUPERCLASSES = tuple(f"{label:02d}_{name}" for label, name in enumerate(_NINE))
"""Names of the nine, by label: those of the Backgrounds Challenge's folders."""


@cache
def _classes() -> list[list[str]]:
    """Return the wnid, the superclass and, where it has one, the name in SI-Score of each class, by number."""
    text = files("objectaware.data").joinpath("imagenet_classes.txt").read_text()
    return [line.split(" ", 2) for line in text.splitlines()]


@cache
def number_of_wnid() -> Mapping[str, int]:
    """Return the numbers of ImageNet's classes by their wnids, in order."""
    return {row[0]: number for number, row in enumerate(_classes())}


@cache
def superclass_of_class() -> NDArray[np.int64]:
    """Return the superclass of each of ImageNet's classes, (1000,): 0 to 8, or -1 for the 630 that belong to none."""
    superclasses = np.array([int(row[1]) for row in _classes()], dtype=np.int64)
    superclasses.flags.writeable = False  # shared by all callers
    return superclasses


@cache
def class_of_si_score() -> Mapping[str, int]:
    """Return ImageNet's class of each folder of SI-Score, by the folder's name."""
    return {row[2]: number for number, row in enumerate(_classes()) if len(row) == 3}


def common_superclass(classes: Sequence[int]) -> int:
    """Return the superclass that some of ImageNet's classes have in common, or -1 where they have none."""
    found = {int(superclass_of_class()[number]) for number in classes}
    return found.pop() if len(found) == 1 else -1


def select_superclasses(images: ImageFolder, superclasses: NDArray[np.int64], root: str) -> ImageFolder:
    """Label images with the nine superclasses of ImageNet-9, and leave out those of other classes.

    Args:
        images: Labelled images.
        superclasses: Superclass of each of their classes, 0 to 8, or -1.
        root: The folder that the user gave, for the message.

    Raises:
        InputError: All would be left out.
    """
    assert images.labels is not None
    superclass_of_image = superclasses[images.labels]
    places = np.flatnonzero(superclass_of_image >= 0)
    if not len(places):
        remedy = "Leave classes out, or give a folder that has some."
        raise InputError("classes", "imagenet-9", f"has none of its 370 classes in {root}", remedy)
    chosen = images.select(places.tolist())
    return ImageFolder(chosen.root, chosen.image_ids, superclass_of_image[places], SUPERCLASSES, chosen.notice)


is_wnid = re.compile(r"n\d{8}").fullmatch
_FLAT_NAME = re.compile(r"ILSVRC2012_val_.*\.JPEG")
_DEVKIT = "ILSVRC2012_devkit_t12/data"
_GROUND_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
_RELEASE = Release("imagenet", ("ILSVRC/Data/CLS-LOC", "Data/CLS-LOC"))


def load_class_folders(folder: Path, class_of_name: Mapping[str, int], known: str, release: Release) -> ImageFolder:
    """Open a folder with one folder per class of ImageNet. Not all of the 1,000 need to be there.

    Args:
        folder: The folder.
        class_of_name: Numbers of ImageNet's classes by the names of their folders.
        known: The classes that the names stand for, for messages.
        release: The data set, whose remedy is that for a folder with another name.

    Returns:
        The images with the numbers of their classes, 0 to 999; class names are wnids.

    Raises:
        InputError: A folder has another name, or holds no image; or see `ImageFolder.from_classes`.
    """
    images = ImageFolder.from_classes(folder)
    for name in images.class_names:
        if name not in class_of_name:
            raise InputError(release.field, folder / name, f"is not one of {known}", release.remedy)
    assert images.labels is not None
    numbers = np.array([class_of_name[name] for name in images.class_names], dtype=np.int64)
    return ImageFolder(folder, images.image_ids, numbers[images.labels], tuple(number_of_wnid()))


def load_wnid_folders(folder: Path) -> ImageFolder:
    """Open a folder with one folder per class, named by its wnid; see `load_class_folders`."""
    release = replace(_RELEASE, remedy="Each folder there must be named by the wnid of its class, such as n01440764.")
    return load_class_folders(folder, number_of_wnid(), "ImageNet's 1,000 classes", release)


def _flat_validation(root: Path, folder: Path) -> ImageFolder:
    names = sorted(entry.name for entry in list_folder(folder, field="imagenet") if _FLAT_NAME.fullmatch(entry.name))
    if not names:
        remedy = "Give the folder that holds ImageNet's train and val."
        raise InputError("imagenet", folder, "holds neither class folders nor ILSVRC2012_val_*.JPEG", remedy)
    wnids, numbers = _validation_wnids(root, folder), number_of_wnid()
    unknown = [name for name in names if wnids.get(Path(name).stem) not in numbers]
    if unknown:
        remedy = "Take the file of labels and the images from the same download."
        raise InputError("imagenet", folder / unknown[0], "has no label", remedy)
    return ImageFolder(folder, names, [numbers[wnids[Path(name).stem]] for name in names], tuple(numbers))


def _validation_wnids(root: Path, folder: Path) -> dict[str, str]:
    """Return the wnid of each validation image, by its name without the suffix."""
    around = [root, folder.parent, root.parent]
    for place in around:
        solution = place / "LOC_val_solution.csv"
        if is_file(solution, field="imagenet"):
            rows = (line.split(",", 1) for line in _RELEASE.lines(solution)[1:])
            return {name: boxes.split()[0] for name, boxes in rows}
    for place in around:
        for kit in (place / _DEVKIT, place):
            if is_file(kit / _GROUND_TRUTH, field="imagenet"):
                return _ground_truth(kit)
    sought = f"{root / 'LOC_val_solution.csv'} nor in {root / _DEVKIT / _GROUND_TRUTH}"
    remedy = "Put one of them there (Kaggle's download has the first, ILSVRC2012_devkit_t12.tar.gz the second)."
    raise InputError("imagenet", folder, f"is flat, and its labels are neither in {sought}", remedy)


def _ground_truth(kit: Path) -> dict[str, str]:
    if not is_file(kit / "meta.mat", field="imagenet"):
        raise InputError("imagenet", kit / "meta.mat", "does not exist", "It comes with the ground truth beside it.")
    from scipy.io import loadmat  # here, or whatever reads a configuration would wait for it

    lines = _RELEASE.lines(kit / _GROUND_TRUTH)
    # SciPy raises whatever a malformed file provokes in it.
    with _RELEASE.reading(kit, f"does not hold the kit's meta.mat and {_GROUND_TRUTH}", Exception):
        synsets = loadmat(str(kit / "meta.mat"), squeeze_me=True)["synsets"]
        numbers, wnids = synsets["ILSVRC2012_ID"].tolist(), synsets["WNID"].tolist()
        wnid_of_number = dict(zip(map(int, numbers), map(str, wnids), strict=True))
        labels = [wnid_of_number[int(line)] for line in lines]
    return {f"ILSVRC2012_val_{place:08}": wnid for place, wnid in enumerate(labels, start=1)}


class ImageNetClasses(Dataset):
    """Base of the layouts whose classes are ImageNet's."""

    labels = "class of ImageNet"
    has_superclasses = True

    def by_superclass(self, images: OpenedImages) -> ImageFolder:
        """Label images with the superclasses of ImageNet's classes."""
        assert isinstance(images, ImageFolder), type(images)
        return select_superclasses(images, superclass_of_class(), self.root)


class ImageNet(ImageNetClasses):
    """ILSVRC 2012. Labels are the numbers of classes, 0 to 999; class names are wnids."""

    name = "imagenet"
    content = "{train,val}/<wnid>/*.JPEG, or val flat beside its labels"
    splits = ("train", "val")

    def open_images(self) -> ImageFolder:
        """List the images of a split."""
        folder = _RELEASE.base(self.root, self.split) / self.split
        if self.split == "val" and not any(map(is_wnid, subfolders(folder, field="imagenet"))):
            return _flat_validation(Path(self.root), folder)
        return load_wnid_folders(folder)


IMAGENET_TERMS = "ImageNet's terms of access: non-commercial research and education"
NUM_IN_370_CLASSES = 18_500
"""Images of 370 classes where each has 50."""

_WSOL = published_parts("ILSVRC")

PublishedSet(
    "ImageNet",
    "imagenet",
    IMAGENET_TERMS,
    "image-net.org (ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar, ILSVRC2012_devkit_t12.tar.gz) or Kaggle's "
    "imagenet-object-localization-challenge; torchvision.datasets.ImageNet unpacks the archives",
    {part: {"layout": ImageNet.name, "split": part} for part in ImageNet.splits} | _WSOL,
    {"train": 1_281_167, "val": 50_000, "wsol-val": 10_000, "wsol-test": 50_000},
    "a tenth of train: objectaware data subset (docs/paper.md)",
    measured=tuple(_WSOL),
)


def publish_superclasses(whole: PublishedSet, note: str = "", num_images: int | None = None) -> None:
    """Make known the images of a set whose class is one of ImageNet-9's 370, labelled with the nine superclasses."""
    replace(
        whole,
        name=f"{whole.name}-9",
        parts={part: {**fields, "classes": "imagenet-9"} for part, fields in whole.parts.items()},
        num_images={} if num_images is None else dict.fromkeys(whole.parts, num_images),
        note=note or whole.note,
    )


_SIDE = 64
_VAL_ANNOTATIONS = "val/val_annotations.txt"
_TINY_RELEASE = Release("tiny_imagenet", ("tiny-imagenet-200",), ("wnids.txt", "train"))


class TinyImageNetBoxes(GroundTruth):
    """The published box of each image, by index; there are no masks.

    Args:
        data: The part.
        image_ids: The images, as `TinyImageNet` names them.

    Raises:
        InputError: A file is missing or malformed, or has no box of an image.
    """

    has_masks = False

    def __init__(self, data: Dataset, image_ids: list[str]) -> None:
        base = _TINY_RELEASE.base(data.root)
        folder = base / "train" if data.split == "train" else base / "val" / "images"
        # The boxes are ImageNet's, whose tools showed pictures as they are stored.
        self._turns = Turns(ImageFolder(folder, image_ids), field=_TINY_RELEASE.field)
        lists = {_VAL_ANNOTATIONS: (6, "")}
        if data.split == "train":
            wnids = dict.fromkeys(PurePosixPath(name).parts[0] for name in image_ids)
            lists = {f"train/{wnid}/{wnid}_boxes.txt": (5, f"{wnid}/images/") for wnid in wnids}
        corners = {
            prefix + row[0]: _corners(row, base / name)
            for name, (num_fields, prefix) in lists.items()
            for row in _rows(base / name, num_fields)
        }
        missing = next((image_id for image_id in image_ids if image_id not in corners), None)
        if missing is not None:
            raise _TINY_RELEASE.malformed(folder / missing, "has no box")
        self._corners = [corners[image_id] for image_id in image_ids]
        super().__init__(image_ids, [ImageFolder(base, list(lists))])

    def boxes(self, index: int) -> NDArray[np.float64]:
        """Return the published box (1, 4), x0 y0 x1 y1 relative to the upright image."""
        x0, y0, x1, y1 = self._corners[index]
        # The file names the first and the last pixel of the object; an edge lies behind its last pixel.
        edges = np.array([[x0, y0, x1 + 1, y1 + 1]], dtype=np.float64) / _SIDE
        return self._turns.of(index, (_SIDE, _SIDE)).boxes(edges.clip(0, 1))


def _rows(path: Path, num_fields: int) -> list[list[str]]:
    """Read the lines of a file: an image, in `val` its class, and four corners, with tabs between them."""
    rows = [line.split("\t") for line in _TINY_RELEASE.lines(path)]
    for number, row in enumerate(rows, start=1):
        if len(row) != num_fields:
            raise _TINY_RELEASE.malformed(path, f"has {len(row)} fields, not {num_fields}, in line {number}")
    return rows


def _corners(row: list[str], path: Path) -> list[int]:
    with _TINY_RELEASE.reading(path, f"has corners that are not whole numbers: {row}", ValueError):
        x0, y0, x1, y1 = (int(value) for value in row[-4:])
    if x1 < x0 or y1 < y0:
        raise _TINY_RELEASE.malformed(path, f"has a box that ends before it begins: {row}")
    return [x0, y0, x1, y1]


class TinyImageNet(Dataset):
    """Tiny-ImageNet: 200 classes of ImageNet at 64 × 64 pixels, each picture with the box of its object.

    `wnids.txt`, `train/<wnid>/images/*.JPEG` with `train/<wnid>/<wnid>_boxes.txt`, and `val/images/*.JPEG` with
    `val/val_annotations.txt`, as tiny-imagenet-200.zip unpacks. The part `test` has no labels, and is left out. There
    are 500 images per class in `train` and 50 in `val`. Classes are numbered in the order of their wnids.
    """

    name = "tiny-imagenet"
    content = "train/<wnid>/images/*.JPEG, val/images/*.JPEG, wnids.txt and their lists of boxes"
    labels = "class of Tiny-ImageNet"
    masks = "boxes"
    splits = ("train", "val")

    def open_images(self) -> ImageFolder:
        """List the images of a split. An image of a class that `wnids.txt` does not name is refused."""
        base = _TINY_RELEASE.base(self.root)
        wnids = sorted(_TINY_RELEASE.lines(base / "wnids.txt"))
        label_of_wnid = {wnid: label for label, wnid in enumerate(wnids)}
        if self.split == "train":
            found = ImageFolder.from_classes(base / "train")
            folder, wnid_of_image = found.root, {name: PurePosixPath(name).parts[0] for name in found.image_ids}
        else:
            folder = base / "val" / "images"
            wnid_of_image = {name: wnid for name, wnid, *_ in _rows(base / _VAL_ANNOTATIONS, 6)}
        for name, wnid in wnid_of_image.items():
            if wnid not in label_of_wnid:
                problem = f"is of the class {wnid}, which wnids.txt does not name"
                raise _TINY_RELEASE.malformed(folder / name, problem)
        return ImageFolder(folder, list(wnid_of_image), [label_of_wnid[wnid] for wnid in wnid_of_image.values()], wnids)

    def truth_of(self, image_ids: list[str], *, needs_boxes: bool = True) -> TinyImageNetBoxes:
        """Open the boxes."""
        return TinyImageNetBoxes(self, image_ids)


PublishedSet(
    "Tiny-ImageNet",
    "tiny-imagenet-200",
    IMAGENET_TERMS,
    "cs231n.stanford.edu/tiny-imagenet-200.zip",
    {split: {"layout": TinyImageNet.name, "split": split} for split in TinyImageNet.splits},
    {"train": 100_000, "val": 10_000},
    measured=("val",),
)
