"""wsolevaluation (Choe et al., 2020): its metadata gives true boxes of CUB and ImageNet, and masks of OpenImages.

`<metadata>/<split>/{image_ids,class_labels,image_sizes,localization}.txt` beside a folder of images; the metadata of
each data set is a folder of github.com/clovaai/wsolevaluation. Format as in its `data_loaders.py` at 96f4b88, see
reference/official-implementation.md §5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from objectaware.data.dataset import Dataset, PublishedSet
from objectaware.data.folder import ImageFolder
from objectaware.data.truth import GroundTruth, Turns, read_pixels
from objectaware.data.user_files import Release, Table, is_file, is_folder, list_folder, look_at, subfolders
from objectaware.errors import InputError

_FIELD = "wsolevaluation"
_RELEASE = Release(
    _FIELD, remedy="Give metadata/CUB, metadata/ILSVRC or metadata/OpenImages of github.com/clovaai/wsolevaluation."
)
_MASKS = replace(_RELEASE, remedy="Extract wsolevaluation's masks beside the images.")
_MASK_SIZE = 224


class PublishedBoxes(GroundTruth):
    """Boxes of the metadata, one or more per image, by index.

    Args:
        folder: The metadata of the part.
        names: The images, as the metadata names them.
        turns: The turns that bring their boxes upright.

    Raises:
        InputError: An image has no box or no size.
    """

    has_masks = False

    def __init__(self, folder: Path, names: Sequence[str], turns: Turns) -> None:
        super().__init__(names, [ImageFolder(folder, ["localization.txt", "image_sizes.txt"])])
        self._turns = turns
        boxes, sizes = _numbers(folder / "localization.txt", 4), _numbers(folder / "image_sizes.txt", 2)
        self._boxes, self._sizes = [boxes[name] for name in names], [sizes[name][-2:] for name in names]

    def boxes(self, index: int) -> NDArray[np.float64]:
        """Return the published boxes (n, 4), x0 y0 x1 y1 relative to the upright image."""
        width, height = self._sizes[index]
        relative = np.array(self._boxes[index], dtype=np.float64).reshape(-1, 4) / np.array([width, height] * 2)
        return self._turns.of(index, (height, width)).boxes(relative)


class PublishedMasks(GroundTruth):
    """Masks of the metadata, one or more per image, and regions to be ignored, by index.

    They are given at 224 × 224 pixels, each shrunk by nearest neighbour as the tool does it before it unites them, so
    that the numbers are the tool's. There are no boxes: an ignored region may hold objects without a mask.

    Args:
        root: Folder of the images, which the masks lie beside.
        path: The list of masks.
        lines: Its lines: image, mask, and on an image's first line the region to be ignored.
        names: The images, as the metadata names them.
        turns: The turns that bring their masks upright.

    Raises:
        InputError: A line is malformed, or an image has no mask.

    Source:
        `get_mask` of wsolevaluation's `evaluation.py`.
    """

    has_ignored = True

    def __init__(self, root: Path, path: Path, lines: Sequence[str], names: Sequence[str], turns: Turns) -> None:
        rows = [line.rsplit(",", 2) for line in lines]
        for place, row in enumerate(rows, start=1):
            if len(row) != 3:
                raise _RELEASE.malformed(path, f"has no image, mask and ignored region in line {place}")
        masks = Table(_RELEASE, path, ((name, [mask]) for name, mask, _ in rows))
        ignored = {name: ignore for name, _, ignore in rows if ignore}
        self._root = root
        self._turns = turns
        self._masks = [masks[name] for name in names]
        self._ignored = [ignored.get(name) for name in names]
        files = [file for one in self._masks for file in one] + [file for file in self._ignored if file]
        super().__init__(names, [ImageFolder(path.parent, [path.name]), ImageFolder(root, files)])

    def mask(self, index: int) -> NDArray[np.bool_]:
        """Return the union of an image's masks, (224, 224), upright."""
        return np.any([self._read(index, name) for name in self._masks[index]], axis=0)

    def ignored(self, index: int) -> NDArray[np.bool_] | None:
        """Return the pixels to be ignored, less those that a mask covers, (224, 224)."""
        name = self._ignored[index]
        return None if name is None else self._read(index, name) & ~self.mask(index)

    def boxes(self, index: int) -> NDArray[np.float64]:
        """Return no boxes, (0, 4)."""
        return np.zeros((0, 4))

    def _read(self, index: int, name: str) -> NDArray[np.bool_]:
        import cv2  # here, or whatever reads a configuration would wait for it

        pixels = read_pixels(self._root / name, "L", _MASKS)
        turn = self._turns.of(index, pixels.shape)
        # Shrunk first, so that what is kept of a picture that is not turned is what the tool keeps.
        return turn.pixels(cv2.resize(pixels, (_MASK_SIZE, _MASK_SIZE), interpolation=cv2.INTER_NEAREST) > 0)


def _image_ids(folder: Path) -> list[str]:
    names = _RELEASE.lines(folder / "image_ids.txt")
    if not names:
        raise _RELEASE.malformed(folder / "image_ids.txt", "names no image")
    return names


def _placed(root: str, names: Sequence[str]) -> tuple[Path, list[str]]:
    """Find the folder that the images are relative to, and their paths in it."""
    for base in (Path(root), Path(root, "images")):
        if is_file(base / names[0], field=_FIELD):
            return base, list(names)
    first = PurePosixPath(names[0])
    folder = Path(root, first.parent)
    by_class = {
        entry.name: Path(entry.path).relative_to(root).as_posix()
        for name in (subfolders(folder, field=_FIELD) if is_folder(folder, field=_FIELD) else ())
        for entry in list_folder(folder / name, field=_FIELD)
    }
    if first.name not in by_class:
        remedy = "Give the folder that the paths of its image_ids.txt are relative to."
        raise InputError(_FIELD, root, f"holds no {Path(root, first)}", remedy)
    return Path(root), [by_class.get(PurePosixPath(name).name, name) for name in names]


def _numbers(path: Path, number: int) -> Table[str, int]:
    """Read lines of a path and `number` whole numbers behind it."""

    def parse(line: str) -> tuple[str, list[int]]:
        name, *values = line.rsplit(",", number)
        if len(values) < number:
            raise ValueError("it ends too early")
        return name, [int(value) for value in values]

    return Table(_RELEASE, path, _RELEASE.rows(path, parse, f"path with {number} whole numbers behind it"))


class Wsolevaluation(Dataset):
    """A data set that wsolevaluation has metadata of; classes are named by their numbers.

    The paths of the metadata are relative to the folder, or to its `images`. ImageNet's validation images, which the
    metadata has in one folder, may lie in one folder per class below it.
    """

    name = "wsolevaluation"
    content = "images of CUB, ImageNet or OpenImages, with wsolevaluation's metadata in another folder"
    labels = "class"
    masks = "boxes; of OpenImages masks"
    splits = ("train", "val", "test")
    has_metadata = True

    def open_images(self) -> ImageFolder:
        """List the images of a part."""
        folder = Path(self.metadata, self.split)
        names = _image_ids(folder)
        label_of_image = _numbers(folder / "class_labels.txt", 1)
        labels = [label_of_image[name][-1] for name in names]
        base, image_ids = _placed(self.root, names)
        return ImageFolder(base, image_ids, labels, [str(number) for number in range(max(labels) + 1)])

    @property
    def has_truth(self) -> bool:
        """Whether the metadata has boxes or masks of the part; it has none of most training parts."""
        state = look_at(Path(self.metadata, self.split, "localization.txt"), field=_FIELD)
        return state is not None and state.st_size > 0

    def truth_of(self, image_ids: list[str], *, needs_boxes: bool = True) -> PublishedBoxes | PublishedMasks:
        """Open the masks where the metadata has masks, else the boxes."""
        folder = Path(self.metadata, self.split)
        path = folder / "localization.txt"
        listed = _image_ids(folder)
        base, placed = _placed(self.root, listed)
        name_of_image = dict(zip(placed, listed, strict=True))
        names = [name_of_image[image_id] for image_id in image_ids]
        # The metadata's sizes and masks are of the pictures as they are stored.
        turns = Turns(ImageFolder(base, image_ids), field=_FIELD)
        lines = _RELEASE.lines(path)
        if not lines:
            problem = "is empty: the metadata has neither boxes nor masks of this part"
            raise InputError(_FIELD, path, problem, "Measure on val or test.")
        if lines[0].count(",") == 2:
            return PublishedMasks(base, path, lines, names, turns)
        return PublishedBoxes(folder, names, turns)


def published_parts(name: str) -> dict[str, dict[str, str]]:
    """Return the parts of a published data set that wsolevaluation has boxes or masks of.

    Args:
        name: Of the data set's folder of metadata.
    """
    metadata = f"@data/wsolevaluation/metadata/{name}"
    return {
        f"wsol-{split}": {"layout": Wsolevaluation.name, "split": split, "metadata": metadata}
        for split in ("val", "test")
    }


PublishedSet(
    "OpenImages",
    "OpenImages",
    "pictures CC BY 2.0, annotations CC BY 4.0",
    "images and masks as github.com/clovaai/wsolevaluation links them, both into this folder; a clone of it beside it",
    published_parts("OpenImages"),
    {"wsol-val": 2_500, "wsol-test": 5_000},
    measured=("wsol-val", "wsol-test"),
)
