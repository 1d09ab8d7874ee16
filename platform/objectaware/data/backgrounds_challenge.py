"""The Backgrounds Challenge (ImageNet-9) in its published layout.

`<root>/<variant>/{train,val}/<class>/*.JPEG` and `<root>/fg_mask/{train,val}/<class>/*.npy`, with classes
named `00_dog` to `08_fish`. The release archive puts the variants of `val` under `bg_challenge/`; they are
found there too. Layout of MadryLab/backgrounds_challenge at 46d224b, whose loader this matches but for the
check of the class folders; see reference/official-implementation.md §5.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from objectaware.data.folder import ImageFolder
from objectaware.data.images import UnreadableImage
from objectaware.data.orientation import Turns
from objectaware.data.places import is_folder
from objectaware.errors import InputError

VARIANTS = (
    "original",
    "mixed_same",
    "mixed_rand",
    "mixed_next",
    "only_fg",
    "no_fg",
    "only_bg_b",
    "only_bg_t",
)
"""What is shown of a picture: all of it; its object on a background of the same, a random or the next class;
its object alone; all but the object's shape; all but the object's box, blackened or tiled over."""


def load_variant(root: str | Path, variant: str, split: str) -> ImageFolder:
    """Open one variant of the pictures.

    Args:
        root: Folder of the data set.
        variant: One of `VARIANTS`.
        split: Part of the data set.

    Returns:
        The images with their labels: the number at the start of the class folder's name.

    Raises:
        InputError: The variant is unknown, its folder is missing or holds no image, or its class folders are
            not numbered from 0 without a gap (a missing class would shift the labels of those behind it).
    """
    if variant not in VARIANTS:
        raise InputError("variant", variant, "is unknown", f"Give one of {', '.join(VARIANTS)}.")
    folder = _find_split(root, variant, split)
    images = ImageFolder.from_classes(folder)
    for label, name in enumerate(images.class_names):
        number = re.match(r"\d+", name)
        if number is None or int(number[0]) != label:
            remedy = "Class folders are named 00_…, 01_… and so on, without a gap; restore the missing one."
            raise InputError("variant", folder / name, f"is class folder number {label} in order", remedy)
    return images


def has_foreground_masks(root: str | Path, split: str) -> bool:
    """Tell whether the true foregrounds were published, or built, for a split: `fg_mask/<split>` is there."""
    return any(is_folder(place, field="fg_mask") for place in _split_places(root, "fg_mask", split))


def foreground_folder(root: str | Path, split: str) -> Path:
    """Finds the folder of the true foregrounds of a split.

    Raises:
        InputError: There is none.
    """
    return _find_split(root, "fg_mask", split)


def foreground_turns(root: str | Path, split: str, image_ids: list[str]) -> Turns:
    """Give what brings the true foregrounds of pictures of `original` upright."""
    places = _split_places(root, "original", split)
    folder = next((place for place in places if is_folder(place, field="backgrounds_challenge")), places[0])
    pictures = ImageFolder(folder, image_ids)
    # They were drawn with what shows pictures as they are stored.
    return Turns(pictures, field="fg_mask", unclear="stored")


def load_foreground_mask(root: str | Path, split: str, image_id: str) -> NDArray[np.bool_]:
    """Read the true foreground of a picture.

    Args:
        root: Folder of the data set.
        split: Part of the data set.
        image_id: Path of the picture in its variant, `<class>/<name>.JPEG`; the mask is `<class>/<name>.npy`.

    Returns:
        Shape (H, W), true on the object, as it was drawn; `foreground_turns` brings it upright.

    Raises:
        InputError: There is no mask of that name, or it is not a two-dimensional array of numbers.
    """
    path = _find_split(root, "fg_mask", split) / PurePosixPath(image_id).with_suffix(".npy")
    try:
        mask = np.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        remedy = "Every picture of 'original' needs its mask there."
        raise InputError("fg_mask", path, "does not exist", remedy) from error
    except (OSError, ValueError, EOFError) as error:
        remedy = "Extract it from the archive again."
        raise InputError("fg_mask", path, f"is not a NumPy array ({error})", remedy) from error
    if mask.ndim != 2 or mask.dtype.kind not in "biuf":
        problem = f"has shape {mask.shape} and type {mask.dtype}"
        raise InputError("fg_mask", path, problem, "A mask is a two-dimensional array of numbers.")
    return mask > 0


class TrainingForegrounds:
    """True foregrounds of the pictures to train on, by index.

    Those in `fg_mask` where it has the split. The published data has none for the training pictures; there they
    are what the variant `only_fg` shows: its pixels above 0 in all three channels.

    Args:
        root: Folder of the data set.
        split: Part of the data set.
        image_ids: Paths of the pictures in their variant, `<class>/<name>.JPEG`.

    Attributes:
        files: The files that the foregrounds are read from, in the order of the pictures.

    Raises:
        InputError: There is neither folder.

    Source:
        official-implementation §2 (BG-HardMix: masks "derived from IN-9's only_fg training variant (> 0)") and §5.
    """

    def __init__(self, root: str | Path, split: str, image_ids: list[str]) -> None:
        self._root = root
        self._split = split
        self._image_ids = image_ids
        self._has_masks = has_foreground_masks(root, split)
        self._turns = foreground_turns(root, split, image_ids)
        names = [str(PurePosixPath(name).with_suffix(".npy")) for name in image_ids] if self._has_masks else image_ids
        self.files = ImageFolder(_find_split(root, "fg_mask" if self._has_masks else "only_fg", split), names)

    def __len__(self) -> int:
        return len(self._image_ids)

    def __getitem__(self, index: int) -> NDArray[np.bool_]:
        """Foreground of a picture, (H, W), upright.

        Raises:
            InputError: Its file is missing or damaged, or is not of the picture's size.
        """
        mask = self._read(index)
        return self._turns.of(index, mask.shape).pixels(mask)

    def _read(self, index: int) -> NDArray[np.bool_]:
        if self._has_masks:
            return load_foreground_mask(self._root, self._split, self._image_ids[index])
        try:
            return np.asarray((self.files.read(index) > 0).all(axis=2))
        except UnreadableImage as error:
            remedy = "Every picture of 'original' needs its object there; extract it from the archive again."
            raise InputError("only_fg", self.files.path(index), error.reason, remedy) from error


def _find_split(root: str | Path, name: str, split: str) -> Path:
    places = _split_places(root, name, split)
    for place in places:
        if is_folder(place, field="backgrounds_challenge"):
            return place
    remedy = "Give the folder that the Backgrounds Challenge archive was extracted to."
    raise InputError("backgrounds_challenge", root, f"holds neither {places[0]} nor {places[1]}", remedy)


def _split_places(root: str | Path, name: str, split: str) -> list[Path]:
    return [Path(root, name, split), Path(root, "bg_challenge", name, split)]
