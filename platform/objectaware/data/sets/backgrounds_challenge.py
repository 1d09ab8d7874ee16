"""The Backgrounds Challenge (ImageNet-9) in its published layout, and training images for it out of a user's ImageNet.

`<root>/<variant>/{train,val}/<class>/*.JPEG` and `<root>/fg_mask/{train,val}/<class>/*.npy`, with classes
named `00_dog` to `08_fish`. The release archive puts the variants of `val` under `bg_challenge/`; they are
found there too. Layout of MadryLab/backgrounds_challenge at 46d224b, whose loader this matches except for the
check of the class folders; see reference/official-implementation.md §5.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from objectaware.data.dataset import DataConfig, Dataset, PublishedSet
from objectaware.data.folder import ImageFolder
from objectaware.data.images import UnreadableImage
from objectaware.data.sets.imagenet import IMAGENET_TERMS, SUPERCLASSES, ImageNet, is_wnid, superclass_of_class
from objectaware.data.truth import GroundTruth, Turns
from objectaware.data.user_files import Release, find_class_folders, is_folder
from objectaware.errors import InputError

_FIELD = "backgrounds_challenge"
_MASKS = Release("fg_mask", remedy="Every picture of 'original' needs its mask.")
VARIANTS = ("original", "mixed_same", "mixed_rand", "mixed_next", "only_fg", "no_fg", "only_bg_b", "only_bg_t")
"""The parts of a picture that each variant shows: all of it; its object on a background of the same, a random or the
next class; its object alone; all but the object's shape; all but the object's box, blackened or tiled over."""
HOLDOUT_FRACTION = 0.05
"""Share of ImageNet-9's training images on which a linear classifier's penalty is chosen (paper, appendix B.3). A test
compares it with the recipes."""


class Foregrounds(GroundTruth):
    """True foregrounds of the pictures of `original`, by index, from `fg_mask`.

    Args:
        data: The pictures.
        image_ids: Their paths in the variant, `<class>/<name>.JPEG`; a mask is `<class>/<name>.npy`.

    Raises:
        InputError: There is no such folder.
    """

    folder = "fg_mask"

    def __init__(self, data: Dataset, image_ids: list[str]) -> None:
        self._masks = ImageFolder(_find_split(data, self.folder), [self._file_name(name) for name in image_ids])
        super().__init__(image_ids, [self._masks])
        places = _split_places(data, "original")
        pictures = next((one for one in places if is_folder(one, field=_FIELD)), places[0])
        # They were drawn with tools that show pictures as they are stored.
        self._turns = Turns(ImageFolder(pictures, image_ids), field="fg_mask")

    def mask(self, index: int) -> NDArray[np.bool_]:
        """Return the foreground of a picture, (H, W), upright.

        Raises:
            InputError: Its file is missing or damaged, or is not of the picture's size.
        """
        return self._turns.upright(index, self._read(index))

    def _file_name(self, image_id: str) -> str:
        return str(PurePosixPath(image_id).with_suffix(".npy"))

    def _read(self, index: int) -> NDArray[np.bool_]:
        path = self._masks.path(index)
        with _MASKS.reading(path, "is not a NumPy array", OSError, ValueError, EOFError):
            mask = np.load(path, allow_pickle=False)
        if mask.ndim != 2 or mask.dtype.kind not in "biuf":
            problem = f"has shape {mask.shape} and type {mask.dtype}"
            raise InputError("fg_mask", path, problem, "A mask is a two-dimensional array of numbers.")
        return mask > 0


class ShownForegrounds(Foregrounds):
    """Foregrounds of the training pictures, for which no masks were published: what the variant `only_fg` shows.

    They are its pixels above 0 in all three channels.

    Source:
        official-implementation §2 (BG-HardMix: masks "derived from IN-9's only_fg training variant (> 0)") and §5.
    """

    folder = "only_fg"

    def _file_name(self, image_id: str) -> str:
        return image_id

    def _read(self, index: int) -> NDArray[np.bool_]:
        try:
            return np.asarray((self._masks.read(index) > 0).all(axis=2))
        except UnreadableImage as error:
            remedy = "Every picture of 'original' needs its object there; extract it from the archive again."
            raise InputError("only_fg", self._masks.path(index), error.reason, remedy) from error


def _find_split(data: Dataset, name: str) -> Path:
    places = _split_places(data, name)
    for one in places:
        if is_folder(one, field=_FIELD):
            return one
    remedy = "Give the folder that the Backgrounds Challenge archive was extracted to."
    raise InputError(_FIELD, data.root, f"holds neither {places[0]} nor {places[1]}", remedy)


def _split_places(data: Dataset, name: str) -> list[Path]:
    return [Path(data.root, name, data.split), Path(data.root, "bg_challenge", name, data.split)]


class BackgroundsChallenge(Dataset):
    """Its variants; true masks are those of `original`. A label is the number at the start of the class folder's name.

    Class folders that are not numbered from 0 without a gap are refused: a missing class would shift the labels of
    those behind it.
    """

    name = "backgrounds-challenge"
    content = "<variant>/{train,val}/<class>/*.JPEG"
    labels = "class"
    masks = "fg_mask"
    splits = ("train", "val")
    variants = VARIANTS
    default_variant = "original"
    true_masks = True

    def open_images(self) -> ImageFolder:
        """List the pictures of a variant."""
        images = ImageFolder.from_classes(_find_split(self, self.variant))
        for label, name in enumerate(images.class_names):
            number = re.match(r"\d+", name)
            if number is None or int(number[0]) != label:
                remedy = "Class folders are named 00_…, 01_… and so on, without a gap; restore the missing one."
                raise InputError("variant", images.root / name, f"is class folder number {label} in order", remedy)
        return images

    @property
    def substitute(self) -> str:
        """Whether `build_imagenet9` made the training images, in words."""
        is_built = self.variant == "original" and _build_record(_find_split(self, self.variant)).is_file()
        return "drawn from ImageNet by `data build imagenet9`, not the published images" if is_built else ""

    @property
    def has_truth(self) -> bool:
        """Whether `fg_mask` has the split. Pictures of other variants have other names, cut along their masks."""
        return self.variant == "original" and _has_masks(self)

    def truth_of(self, image_ids: list[str], *, needs_boxes: bool = True) -> Foregrounds:
        """Open the masks of `fg_mask`."""
        return Foregrounds(self, image_ids)

    def training_truth(self, image_ids: list[str]) -> Foregrounds:
        """Open the masks of `fg_mask` where it has the split, or what `only_fg` shows."""
        return (Foregrounds if _has_masks(self) else ShownForegrounds)(self, image_ids)


def _has_masks(data: Dataset) -> bool:
    return any(is_folder(one, field="fg_mask") for one in _split_places(data, "fg_mask"))


PublishedSet(
    "ImageNet-9",
    "bg_challenge",
    IMAGENET_TERMS,
    "github.com/MadryLab/backgrounds_challenge, release archive backgrounds_challenge_data.tar.gz (val); links of the "
    "training images are dead: `objectaware data build imagenet9` makes them of ImageNet",
    {part: {"layout": BackgroundsChallenge.name, "variant": "original", "split": part} for part in ("train", "val")},
    {"train": 45_405, "val": 4_050},
)

PublishedSet(
    "Backgrounds Challenge",
    "bg_challenge",
    IMAGENET_TERMS,
    "github.com/MadryLab/backgrounds_challenge, release archive backgrounds_challenge_data.tar.gz",
    {variant: {"layout": BackgroundsChallenge.name, "variant": variant, "split": "val"} for variant in VARIANTS},
    dict.fromkeys(VARIANTS, 4_050),
)


NUM_PER_CLASS = 5_045
"""Training images of each superclass in the published set: 45,405 of nine."""

_IMAGE_NAME = re.compile(r"n\d{8}_\d+")
_BOX_FOLDERS = ["ILSVRC/Annotations/CLS-LOC/train", "Annotations/CLS-LOC/train", "Annotation", "."]


@dataclass(frozen=True)
class BuiltSet:
    """The built data set.

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
    """Draw as many images of each superclass and lays them out as `original/train/<superclass>/*.JPEG`.

    The published set has 370 classes in nine superclasses, 5,045 images of each, squares of 224 pixels
    whose foregrounds were cut out along ImageNet's boxes. Which images they are is not known; these are others, whole
    and of any size. Images whose names are in those of the published test pictures that lie in `out` are left out.

    Args:
        imagenet: Folder of ImageNet; see the layout `ImageNet`.
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
    images = ImageNet(DataConfig(root=str(imagenet), layout=ImageNet.name, split="train")).open_images()
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
    _build_record(train).write_text(json.dumps(settings, indent=1) + "\n")
    names = {Path(image_id).stem for image_id in images.image_ids}
    num_candidates = tuple(len(places) for places in candidates)
    return BuiltSet(train, num_per_class * len(SUPERCLASSES), num_candidates, len(names & held_back))


def _build_record(train: Path) -> Path:
    """Return the file that says how `build_imagenet9` made the images of a folder."""
    return train.with_name(f"{train.name}.json")


def _draw(candidates: list[int], number: int, seed: int, superclass: int) -> list[int]:
    if len(candidates) < number:
        problem = f"is more than the {len(candidates)} images of {SUPERCLASSES[superclass]}"
        raise InputError("num_per_class", number, problem, "Lower it, or give the whole of ImageNet.")
    order = np.random.Generator(np.random.PCG64([seed, superclass])).permutation(len(candidates))[:number]
    return [candidates[place] for place in np.sort(order)]


def _published_names(out: Path) -> frozenset[str]:
    """Return the names of the ImageNet images that the published test pictures in a folder are made of."""
    pictures = [path for place in ("", "bg_challenge") for path in (out / place).glob("*/val/*/*") if path.is_file()]
    return frozenset(name for path in pictures for name in _IMAGE_NAME.findall(path.name))


def _box_filter(boxes: str | Path) -> Callable[[str], bool]:
    folder = find_class_folders("boxes", boxes, _BOX_FOLDERS, is_wnid, "n01440764")

    def has_one_box(image_id: str) -> bool:
        path = (folder / image_id).with_suffix(".xml")
        if not path.is_file():  # most images of ImageNet have none
            return False
        with Release("boxes").reading(path, "is not XML", ElementTree.ParseError):
            return len(ElementTree.parse(path).getroot().findall("object/bndbox")) == 1

    return has_one_box


def _lay_out(images: ImageFolder, drawn: list[list[int]], train: Path, *, copy: bool) -> None:
    """Write the class folders under another name, so that an unfinished build does not count as one."""
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
