"""ImageNet-9's training images out of a user's ImageNet, since the links to the published ones are dead."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from objectaware.data.folder import ImageFolder
from objectaware.data.imagenet import load_imagenet
from objectaware.data.places import find_wnid_folder
from objectaware.data.published.imagenet9 import SUPERCLASSES, superclass_of_class
from objectaware.errors import InputError

NUM_PER_CLASS = 5_045
"""Training images of each superclass in the published set: 45,405 of nine."""

_IMAGE_NAME = re.compile(r"n\d{8}_\d+")
_BOX_FOLDERS = ["ILSVRC/Annotations/CLS-LOC/train", "Annotations/CLS-LOC/train", "Annotation", "."]


@dataclass(frozen=True)
class BuiltSet:
    """What was built.

    Attributes:
        folder: Where the class folders lie.
        num_images: Images in all.
        num_candidates: Images of each superclass that could have been drawn.
        num_held_back: Images that the published test pictures are made of, and that were not drawn.
    """

    folder: Path
    num_images: int
    num_candidates: tuple[int, ...]
    num_held_back: int


def build_imagenet9(
    imagenet: str | Path,
    out: str | Path,
    *,
    seed: int = 0,
    num_per_class: int = NUM_PER_CLASS,
    boxes: str | Path | None = None,
    copy: bool = False,
) -> BuiltSet:
    """Draws as many images of each superclass and lays them out as `original/train/<superclass>/*.JPEG`.

    What is known of the published set: 370 classes in nine superclasses, 5,045 images of each, squares of 224 pixels
    whose foregrounds were cut out along ImageNet's boxes. Which images they are is not known; these are others, whole
    and of any size. Images whose names are in those of the published test pictures that lie in `out` are left out.

    Args:
        imagenet: Folder of ImageNet; see `load_imagenet`.
        out: Folder of the data set, such as the one that the Backgrounds Challenge was extracted to.
        seed: Decides which images are drawn.
        num_per_class: Images of each superclass.
        boxes: Folder of the training images' annotations (`<wnid>/<name>.xml`, or Kaggle's ILSVRC): only images with
            exactly one box are drawn. By default any are.
        copy: Copy the files instead of linking to them.

    Raises:
        InputError: ImageNet or the annotations are missing, `out` has training images already, or a superclass has
            too few images.
    """
    train = Path(out).absolute() / "original" / "train"
    if train.exists():
        raise InputError("out", train, "exists", "Give another folder, or delete this one.")
    images = load_imagenet(imagenet, "train")
    assert images.labels is not None
    superclasses = superclass_of_class()[images.labels]
    held_back = _published_names(Path(out))
    has_one_box = (lambda image_id: True) if boxes is None else _box_filter(boxes)
    candidates: list[list[int]] = [[] for _ in SUPERCLASSES]
    for place in np.flatnonzero(superclasses >= 0).tolist():
        image_id = images.image_ids[place]
        if Path(image_id).stem not in held_back and has_one_box(image_id):
            candidates[superclasses[place]].append(place)
    drawn = [_draw(places, num_per_class, seed, superclass) for superclass, places in enumerate(candidates)]
    _lay_out(images, drawn, train, copy=copy)
    settings = {
        "imagenet": str(images.root),
        "seed": seed,
        "num_per_class": num_per_class,
        "one_box": boxes is not None,
    }
    train.with_name("train.json").write_text(json.dumps(settings, indent=1) + "\n")
    names = {Path(image_id).stem for image_id in images.image_ids}
    num_candidates = tuple(len(places) for places in candidates)
    return BuiltSet(train, num_per_class * len(SUPERCLASSES), num_candidates, len(names & held_back))


def _draw(candidates: list[int], number: int, seed: int, superclass: int) -> list[int]:
    if len(candidates) < number:
        problem = f"is more than the {len(candidates)} images of {SUPERCLASSES[superclass]}"
        raise InputError("num_per_class", number, problem, "Lower it, or give the whole of ImageNet.")
    order = np.random.Generator(np.random.PCG64([seed, superclass])).permutation(len(candidates))[:number]
    chosen: NDArray[np.int64] = np.sort(order)
    return [candidates[place] for place in chosen]


def _published_names(out: Path) -> frozenset[str]:
    """Names of the images of ImageNet that published test pictures in a folder are made of."""
    pictures = [path for place in ("", "bg_challenge") for path in (out / place).glob("*/val/*/*") if path.is_file()]
    return frozenset(name for path in pictures for name in _IMAGE_NAME.findall(path.name))


def _box_filter(boxes: str | Path) -> Callable[[str], bool]:
    folder = find_wnid_folder("boxes", boxes, _BOX_FOLDERS)

    def has_one_box(image_id: str) -> bool:
        path = (folder / image_id).with_suffix(".xml")
        if not path.is_file():  # most images of ImageNet have none
            return False
        try:
            return len(ElementTree.parse(path).getroot().findall("object/bndbox")) == 1
        except ElementTree.ParseError as error:
            raise InputError("boxes", path, f"is no XML ({error})", "Extract the annotations again.") from error

    return has_one_box


def _lay_out(images: ImageFolder, drawn: list[list[int]], train: Path, *, copy: bool) -> None:
    """Write the class folders under another name, so that a build that was stopped is none."""
    partial = train.with_name("train.partial")
    if partial.exists() and not {path.name for path in partial.iterdir()} <= {*SUPERCLASSES}:
        raise InputError("out", partial, "holds files that no build wrote", "Give another folder, or move them.")
    shutil.rmtree(partial, ignore_errors=True)
    for superclass, places in zip(SUPERCLASSES, drawn, strict=True):
        folder = partial / superclass
        folder.mkdir(parents=True)
        for source in map(images.path, places):
            if copy:
                shutil.copyfile(source, folder / source.name)
            else:
                (folder / source.name).symlink_to(source)
    partial.rename(train)
