"""A Backgrounds Challenge out of any data set with true masks and classes: its variants as arrays, and the builder.

The published challenge shows objects of nine classes of ImageNet, cut out by GrabCut, with more and with less of their
backgrounds. Here true masks cut out the objects of any classes:

| variant | object | background |
|---|---|---|
| `original` | as it is | as it is |
| `only_fg` | as it is | black |
| `no_fg` | its shape black | as it is |
| `only_bg_b` | its box black | as it is |
| `only_bg_t` | its box filled from the background, tiled | as it is |
| `mixed_same`, `mixed_rand`, `mixed_next` | as it is | `only_bg_t` of another picture |

The picture that gives the background of `mixed_same` is of the same class, that of `mixed_rand` of any class, each
equally probable, and that of `mixed_next` of the next class in their order. The tiled background is the largest
rectangle beside the box, a strip that spans the picture, repeated over the whole picture from its top left corner.

The paper does not say how pictures of other forms and with several objects are treated. These are our rules:

- All objects of a class that a picture shows are one object: their union is the mask, and the box is around all.
- A picture that shows objects of two of the chosen classes is left out, since each would be a part of the other's
  background. Objects of other classes are background.
- A picture is cut to a square, as large as the picture allows, that has the object's box in the middle as far as the
  border lets it. Squashing would change the shapes of objects. The square is then shrunk or enlarged.
- Objects may be cut off by the border of the picture, and by that of the square if less than half of their box is
  lost, as in the paper.
- A picture is left out if the box covers more than 90% of the square, as in the paper, if the strip that would be
  tiled is narrower than a sixteenth of the square, or if the object covers too little of it.

Source:
    Xiao et al. 2021, "Noise or Signal: The Role of Image Backgrounds in Object Recognition", section 2, table 1 and
    appendix A. The code that made the published pictures is not public.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from objectaware.data.dataset import DataConfig, Dataset
from objectaware.data.images import UnreadableImage, resize_image
from objectaware.data.masks import resize_mask
from objectaware.data.scenes import write_jpeg
from objectaware.data.scenes.pictures import black_out_box, largest_strip, mask_box, tile_over_box
from objectaware.data.sets.backgrounds_challenge import VARIANTS
from objectaware.data.truth import GroundTruth
from objectaware.data.user_files import list_folder
from objectaware.errors import InputError

MIXED = ("mixed_same", "mixed_rand", "mixed_next")
"""Variants whose background is another picture's."""
NUM_CLASSES = 9
"""Number of classes by default, as in the published challenge."""
NUM_PER_CLASS = 450
"""Test pictures of each class in the published challenge: 4,050 of nine."""
PARTS = ("train", "val")
MARKER_NAME = "challenge.json"

_MAX_BOX = 0.9
_MIN_STRIP = 1 / 16
_MIN_IMAGE_SIZE = 32
_MIN_PER_CLASS = 2
_UNFINISHED_NAME = ".challenge-unfinished"
_CHUNK_SIZE = 16

Window = tuple[int, int, int]
"""Top, left and side of a square, in pixels."""


def square_window(mask: NDArray[np.bool_]) -> Window:
    """Return the largest square of a picture with the object's box in the middle, as far as the border lets it.

    Args:
        mask: The object, shape (H, W), not empty.
    """
    height, width = mask.shape
    side = min(height, width)
    left, top, right, bottom = mask_box(mask)
    middle = [(top + bottom - side) // 2, (left + right - side) // 2]
    return min(max(middle[0], 0), height - side), min(max(middle[1], 0), width - side), side


def cut_square(pixels: NDArray[Any], window: Window) -> NDArray[Any]:
    """Return the window of an array (H, W, …)."""
    top, left, side = window
    return pixels[top : top + side, left : left + side]


def why_unfit(mask: NDArray[np.bool_], image_size: int, min_object: float) -> str:
    """Return the reason why an object cannot be shown apart from its background, or an empty text.

    Args:
        mask: The object in the whole picture, shape (H, W).
        image_size: Side of the square that will be shown, in pixels.
        min_object: Share of the square that the object must cover.
    """
    if not mask.any():
        return "the object has no pixel"
    window = square_window(mask)
    left, top, right, bottom = mask_box(mask)
    # The box fits between the square's ends along the short side of the picture, where the square is as long.
    kept = [
        max(min(last, start + window[2]) - max(first, start), 0)
        for first, last, start in ((top, bottom, window[0]), (left, right, window[1]))
    ]
    if 2 * kept[0] * kept[1] <= (bottom - top) * (right - left):
        return "the square loses half of the object's box or more"
    square = resize_mask(cut_square(mask, window), image_size, image_size)
    if square.mean() < min_object:
        return f"the object covers less than {min_object:.0%} of the square"
    left, top, right, bottom = mask_box(square)
    if (right - left) * (bottom - top) > _MAX_BOX * square.size:
        return f"the object's box covers more than {_MAX_BOX:.0%} of the square"
    if min(largest_strip(square, square).shape) < _MIN_STRIP * image_size:
        return "the background beside the object's box is too narrow"
    return ""


def challenge_variants(
    image: NDArray[np.uint8], mask: NDArray[np.bool_], backgrounds: Mapping[str, NDArray[np.uint8]]
) -> dict[str, NDArray[np.uint8]]:
    """Return all variants of a picture by name.

    Args:
        image: Shape (H, W, 3).
        mask: The object, shape (H, W); its box must leave some of the picture free.
        backgrounds: The background of each variant of `MIXED`, shape (H, W, 3).

    Returns:
        Pictures of the same shape, in the order of `VARIANTS`.
    """
    inside = mask[:, :, None]
    pictures = {
        "original": image,
        "only_fg": image * inside,
        "no_fg": image * ~inside,
        "only_bg_b": black_out_box(image, mask),
        "only_bg_t": tile_over_box(image, mask, from_corner=True),
        **{variant: np.where(inside, image, backgrounds[variant]) for variant in MIXED},
    }
    return {variant: pictures[variant] for variant in VARIANTS}


@dataclass(frozen=True)
class _Object:
    """An object of a class in an image of one of the sources."""

    source: int
    index: int
    class_name: str


@dataclass(frozen=True)
class _Planned:
    """A picture to write: its path in each variant without a suffix, its object, and those whose backgrounds it gets.

    `donors` are by the variants of `MIXED`.
    """

    path: str
    shown: _Object
    donors: dict[str, _Object]


Shown = dict[str, str]
"""The classes that an image shows, and for each of them the reason why it cannot stand for it, or an empty text."""
_UNREADABLE: Shown = {"": "the image cannot be read"}
"""Instead of the classes, which do not matter then."""


class _Sources:
    """The data sets that pictures are cut out of, as each process opens them.

    Args:
        configs: They name the data sets.
        image_size: Side of a square in pixels.
        min_object: See `why_unfit`.
    """

    def __init__(self, configs: Sequence[DataConfig], image_size: int, min_object: float) -> None:
        self.data = [Dataset.of(config) for config in configs]
        self.image_size = image_size
        self._min_object = min_object

    def truth(self, source: int) -> GroundTruth:
        """Open true masks.

        Raises:
            InputError: The data set has none, or its objects have no classes.
        """
        data = self.data[source]
        truth = data.truth(needs_boxes=False)
        name = " ".join(filter(None, (data.name, data.split)))
        if not truth.has_masks:
            remedy = truth.notice or "Use a layout or split with masks; `objectaware data list` names them."
            raise InputError("layout", name, "has true boxes, but no masks to cut objects out by", remedy)
        if not truth.has_classes and data.images.labels is None:
            remedy = "Use coco, voc, or a layout that has both labels and masks; `objectaware data list` names them."
            raise InputError("layout", name, "does not say of which class an object is", remedy)
        return truth

    def masks(self, source: int, index: int) -> dict[str, NDArray[np.bool_]]:
        """Return the mask (H, W) of each class that an image shows, by name."""
        truth, images = self.truth(source), self.data[source].images
        if truth.has_classes:
            return truth.class_masks(index)
        assert images.labels is not None
        return {images.class_names[images.labels[index]]: truth.mask(index)}

    def survey(self, place: tuple[int, int]) -> Shown:
        """Look at the image of a source."""
        source, index = place
        try:
            height, width = self.data[source].images.read(index).shape[:2]
        except UnreadableImage:
            return _UNREADABLE
        masks = {name: resize_mask(mask, height, width) for name, mask in self.masks(source, index).items()}
        return {name: why_unfit(mask, self.image_size, self._min_object) for name, mask in masks.items()}

    def cut(self, one: _Object) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """Return the square picture (S, S, 3) of an object, and its mask (S, S)."""
        image = self.data[one.source].images.read(one.index)
        mask = resize_mask(self.masks(one.source, one.index)[one.class_name], *image.shape[:2])
        window, size = square_window(mask), self.image_size
        return resize_image(cut_square(image, window), (size, size)), resize_mask(cut_square(mask, window), size, size)

    def write(self, picture: _Planned, folder: Path) -> None:
        """Write all variants of a picture, and its mask."""
        image, mask = self.cut(picture.shown)
        backgrounds = {
            variant: tile_over_box(*self.cut(donor), from_corner=True) for variant, donor in picture.donors.items()
        }
        for variant, pixels in challenge_variants(image, mask, backgrounds).items():
            write_jpeg(folder / variant / f"{picture.path}.JPEG", pixels)
        np.save(folder / "fg_mask" / f"{picture.path}.npy", mask)


@dataclass(frozen=True)
class BuiltChallenge:
    """The built data set.

    Attributes:
        folder: Where it lies.
        num_pictures: Number of pictures by part and class, in the order of the classes.
        left_out: Number of images of the chosen classes that could not be used, by reason.
    """

    folder: Path
    num_pictures: dict[str, dict[str, int]]
    left_out: dict[str, int]


def build_challenge(
    test: DataConfig,
    out: Path,
    *,
    train: DataConfig | None = None,
    classes: Sequence[str] = (),
    num_classes: int = NUM_CLASSES,
    num_per_class: int = NUM_PER_CLASS,
    image_size: int = 224,
    min_object: float = 0.05,
    seed: int = 0,
    num_processes: int | None = None,
    on_progress: Callable[[str], None] = lambda text: None,
) -> BuiltChallenge:
    """Write the variants and masks of pictures of a data set, `train` and `val`, in the layout `backgrounds-challenge`.

    The result depends on the data and the seed, not on the number of processes. `challenge.json` records the
    parameters and, for each picture, the image that it shows and those whose backgrounds it got. It is written last.

    Args:
        test: The images that the part `val` is made of.
        out: A new or empty folder, or one in which a build was cut short.
        train: The images that the part `train` is made of. By default half of the usable images of `test`.
        classes: Names of the classes, in the order that decides which one is next. By default the most frequent ones:
            of those with enough usable images in both parts.
        num_classes: Number of the most frequent classes that are taken at most.
        num_per_class: Largest number of pictures of each class in each part.
        image_size: Side of the pictures in pixels, at least 32.
        min_object: Share of the square picture that the object must cover, above 0.
        seed: Seed of all draws: of the images and of the backgrounds.
        num_processes: Number of processes; by default one for each processor core.
        on_progress: Called with a line that says how far it is.

    Raises:
        InputError: The data set has no masks or no classes, a class is unknown or has too few usable images, or `out`
            holds something else.
    """
    parameters = {
        "num_classes": num_classes,
        "num_per_class": num_per_class,
        "image_size": image_size,
        "min_object": min_object,
        "seed": seed,
    }
    _check(parameters, classes, num_processes)
    configs = [test] if train is None else [train, test]
    sources = _Sources(configs, image_size, min_object)
    for source in range(len(configs)):
        sources.truth(source)
    if out.exists() and any(entry.name != _UNFINISHED_NAME for entry in list_folder(out, field="out")):
        raise InputError("out", out, "is not empty", "Name a new or empty folder.")
    workers = len(os.sched_getaffinity(0)) if num_processes is None else num_processes
    with _workers(sources, configs, min_object, workers) as run:
        found = _survey(run, sources, on_progress)
        names = list(classes) if classes else _frequent_classes(found, len(configs), num_classes)
        _require_pictures(found, len(configs), names)
        drawn = _draw(found, len(configs), names, num_per_class, seed)
        pictures = _plan(drawn, seed)
        _write_all(run, pictures, out, on_progress)
    _record(out / MARKER_NAME, parameters | {"classes": names}, sources, pictures)
    counts = {part: {name: len(some) for name, some in by_class.items()} for part, by_class in drawn.items()}
    return BuiltChallenge(out.absolute(), counts, _left_out(found, names))


def _check(parameters: Mapping[str, Any], classes: Sequence[str], num_processes: int | None) -> None:
    lowest = {"num_classes": 2, "num_per_class": _MIN_PER_CLASS, "image_size": _MIN_IMAGE_SIZE, "seed": 0}
    for field, least in lowest.items():
        if parameters[field] < least:
            raise InputError(field, parameters[field], f"is below {least}", f"Give a whole number of at least {least}.")
    if num_processes is not None and num_processes < 1:
        raise InputError("num_processes", num_processes, "is below 1", "Give a whole number of at least 1.")
    if not 0 < parameters["min_object"] < 1:
        problem = "is not a share of the picture"
        raise InputError("min_object", parameters["min_object"], problem, "Give a number between 0 and 1.")
    twice = [name for name, number in Counter(classes).items() if number > 1]
    if len(classes) == 1 or twice:
        problem = f"names {twice[0]} twice" if twice else "is a single class"
        raise InputError("classes", ",".join(classes), problem, "Name two or more classes, each once.")


Run = Callable[[Callable[[_Sources, Any], Any], Sequence[Any]], Iterator[Any]]
"""Apply a function to the sources and each of several items, and yield the results in order."""


@contextmanager
def _workers(sources: _Sources, configs: Sequence[DataConfig], min_object: float, num_processes: int) -> Iterator[Run]:
    """Start processes, each of which opens the data sets for itself; one process is this one."""
    if num_processes == 1:
        yield lambda function, items: map(partial(function, sources), items)
        return
    # A forked process would have the locks of this one's threads, such as OpenCV's, but not the threads.
    pool = ProcessPoolExecutor(
        num_processes, get_context("spawn"), _open_in_worker, (configs, sources.image_size, min_object)
    )
    try:
        yield lambda function, items: pool.map(partial(_in_worker, function), items, chunksize=_CHUNK_SIZE)
    finally:
        pool.shutdown(cancel_futures=True)


_worker_sources: list[_Sources] = []
"""The data sets, in a process that `_workers` started."""


def _open_in_worker(*arguments: Any) -> None:  # noqa: ANN401 - those of `_Sources`
    _worker_sources.append(_Sources(*arguments))


def _in_worker(function: Callable[[_Sources, Any], Any], item: Any) -> Any:  # noqa: ANN401 - see `Run`
    return function(_worker_sources[0], item)


Places = Mapping[tuple[int, int], Shown]
"""The classes that images show, by source and index."""


def _survey(run: Run, sources: _Sources, on_progress: Callable[[str], None]) -> dict[tuple[int, int], Shown]:
    places = [(source, index) for source, data in enumerate(sources.data) for index in range(len(data.images))]
    found = {}
    for place, shown in zip(places, run(_Sources.survey, places), strict=True):
        found[place] = shown
        on_progress(f"looked at {len(found)} of {len(places)} images")
    return found


def _write_all(run: Run, pictures: Sequence[_Planned], out: Path, on_progress: Callable[[str], None]) -> None:
    """Write the variants under another name, so that an unfinished build does not count as one."""
    folder = out / _UNFINISHED_NAME
    shutil.rmtree(folder, ignore_errors=True)
    for picture in pictures:
        for variant in (*VARIANTS, "fg_mask"):
            (folder / variant / picture.path).parent.mkdir(parents=True, exist_ok=True)
    for done, _ in enumerate(run(partial(_Sources.write, folder=folder), pictures), start=1):
        on_progress(f"wrote {done} of {len(pictures)} pictures")
    for path in sorted(folder.iterdir()):
        path.rename(out / path.name)
    folder.rmdir()


def _usable(found: Places, names: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    """List by class the images that can stand for it and show no other one of the classes."""
    usable: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    for place, shown in found.items():
        of_these = [name for name in shown if name in usable]
        if len(of_these) == 1 and not shown[of_these[0]]:
            usable[of_these[0]].append(place)
    return usable


def _divide(places: Sequence[tuple[int, int]], num_sources: int) -> dict[str, Sequence[tuple[int, int]]]:
    """Give the images of a class to the parts: by their source, or half of them to each part where there is one."""
    if num_sources == 1:
        half = len(places) // 2
        return {"train": places[:half], "val": places[half:]}
    return {part: [place for place in places if place[0] == source] for source, part in enumerate(PARTS)}


def _smallest_part(places: Sequence[tuple[int, int]], num_sources: int) -> int:
    return min(map(len, _divide(places, num_sources).values()))


def _frequent_classes(found: Places, num_sources: int, num_classes: int) -> list[str]:
    """Return the classes with most usable images in the smaller part, in this order.

    Two classes that are often in the same pictures take images from each other. A class is not taken if it, or a more
    frequent one, would then have too few.
    """
    names = {name for shown in found.values() for name in shown} - set(_UNREADABLE)
    alone: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    for place, shown in found.items():
        for name, reason in shown.items():
            if not reason:
                alone[name].append(place)
    numbers = {name: _smallest_part(places, num_sources) for name, places in alone.items()}
    order = sorted((name for name in names if numbers[name] >= _MIN_PER_CLASS), key=lambda name: (-numbers[name], name))
    chosen: list[str] = []
    for name in order:
        usable = _usable(found, [*chosen, name])
        if all(_smallest_part(places, num_sources) >= _MIN_PER_CLASS for places in usable.values()):
            chosen.append(name)
        if len(chosen) == num_classes:
            break
    return chosen


def _require_pictures(found: Places, num_sources: int, names: Sequence[str]) -> None:
    """Refuse classes without another picture of the class in each part, which `mixed_same` needs."""
    if len(names) < 2:
        problem = f"are those with {_MIN_PER_CLASS} usable images in each part, of which two are needed"
        remedy = f"Name others, or give more images. {_reasons(_left_out(found, None))}"
        raise InputError("classes", ",".join(names) or "none", problem, remedy)
    known = {name for shown in found.values() for name in shown} - set(_UNREADABLE)
    for name in [name for name in names if name not in known]:
        remedy = f"Choose of: {', '.join(sorted(known))}."
        raise InputError("classes", name, "is not a class of an object in these images", remedy)
    for name, places in _usable(found, names).items():
        number = _smallest_part(places, num_sources)
        if number < _MIN_PER_CLASS:
            problem = f"has too few usable images in a part: {number} of {_MIN_PER_CLASS} needed"
            remedy = f"Leave the class out, or give more images. {_reasons(_left_out(found, names, of=name))}"
            raise InputError("classes", name, problem, remedy)


def _reasons(left_out: Mapping[str, int]) -> str:
    listed = "; ".join(f"{reason} ({number})" for reason, number in left_out.items())
    return f"Images left out: {listed or 'none'}."


def _left_out(found: Places, names: Sequence[str] | None, of: str | None = None) -> dict[str, int]:
    """Count by reason the images of the classes, or of one of them, that cannot be used."""
    reasons: Counter[str] = Counter()
    for shown in found.values():
        of_these = [name for name in shown if names is None or name in names or name in _UNREADABLE]
        if of is not None and of not in of_these:
            continue
        if names is not None and len(of_these) > 1:
            reasons["the image shows objects of several of the classes"] += 1
        else:
            reasons.update({shown[name] for name in of_these if shown[name]})
    return dict(reasons.most_common())


def _draw(
    found: Places, num_sources: int, names: Sequence[str], num_per_class: int, seed: int
) -> dict[str, dict[str, list[_Object]]]:
    """Draw the objects of each part, by class. A class's draw does not depend on the other classes."""
    drawn: dict[str, dict[str, list[_Object]]] = {part: {} for part in PARTS}
    for name, places in _usable(found, names).items():
        generator = np.random.default_rng([seed, *name.encode()])
        shuffled = [places[at] for at in generator.permutation(len(places))]
        for part, some in _divide(shuffled, num_sources).items():
            drawn[part][name] = [_Object(*place, name) for place in sorted(some[:num_per_class])]
    return drawn


def _plan(drawn: Mapping[str, Mapping[str, Sequence[_Object]]], seed: int) -> list[_Planned]:
    """Draw the donors of backgrounds of each picture: others of the same part, never the picture itself."""
    pictures = []
    for part, by_class in drawn.items():
        classes = list(by_class)
        digits = max(len(str(len(classes) - 1)), 2)
        for label, name in enumerate(classes):
            # A name with a slash would be a folder in a folder.
            folder = f"{label:0{digits}d}_{name.replace('/', '_')}"
            for one in by_class[name]:
                generator = np.random.default_rng([seed, PARTS.index(part), one.source, one.index])
                random_class = classes[int(generator.integers(len(classes)))]
                of_variant = (name, random_class, classes[(label + 1) % len(classes)])
                donors = {}
                for variant, donor_class in zip(MIXED, of_variant, strict=True):
                    others = [other for other in by_class[donor_class] if other != one]
                    donors[variant] = others[int(generator.integers(len(others)))]
                pictures.append(_Planned(f"{part}/{folder}/{part}_{one.index:06d}", one, donors))
    return pictures


def _record(path: Path, parameters: Mapping[str, Any], sources: _Sources, pictures: Sequence[_Planned]) -> None:
    def image_id(one: _Object) -> str:
        return sources.data[one.source].image_ids[one.index]

    configs = [data.config.model_dump(mode="json", exclude_none=True) for data in sources.data]
    content = {
        "name": "challenge",
        "parameters": parameters,
        "sources": {"train": configs[0], "val": configs[-1]},
        "pictures": {
            one.path: {"original": image_id(one.shown)} | {name: image_id(donor) for name, donor in one.donors.items()}
            for one in pictures
        },
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
