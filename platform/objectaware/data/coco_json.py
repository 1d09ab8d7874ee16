"""Read a COCO instance annotation file and draw its segmentations.

A malformed file is refused with a message that says where. pycocotools trusts its input, so segmentations are checked
first: a run-length code of the wrong length gives memory that was never written, and a polygon with a point at 1e300
takes all memory of the machine (both seen with 2.0.11).
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from objectaware.errors import InputError

Polygons = list[list[float]]
RunLengths = dict[str, Any]
Record = TypeVar("Record", bound="_Record")


CocoField = Literal["shape", "category_index", "category_name", "box", "area", "segmentation", "is_crowd"]
"""The fields of images, annotations and categories; only those that a command uses are checked."""


class _Record:
    """An object in the file, with words for where it is."""

    __slots__ = ("_content", "file", "where")

    def __init__(self, file: _File, where: str, content: Mapping[str, Any]) -> None:
        self.file = file
        self.where = where
        self._content = content

    def get(self, key: str, kind: type | tuple[type, ...], default: object = None) -> Any:  # noqa: ANN401
        """Return a value of one of the given types; only where `bool` is among them may it be true or false."""
        if key not in self._content and default is None:
            self.file.refuse(f"{self.where} has no '{key}'")
        value = self._content.get(key, default)
        allows_booleans = isinstance(kind, tuple) and bool in kind
        if not isinstance(value, kind) or (isinstance(value, bool) and not allows_booleans):
            self.file.refuse(f"'{key}' of {self.where} is {value!r:.60}")
        return value


class CocoImage(_Record):
    """A picture that the file lists. Each property raises InputError where the file does not give it in its form."""

    __slots__ = ()

    @property
    def file_name(self) -> str:
        """Path relative to the image folder."""
        return self.get("file_name", str)

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width in pixels."""
        height, width = self.get("height", int), self.get("width", int)
        if width < 1 or height < 1:
            self.file.refuse(f"the size of {self.where} is {width} x {height}")
        return height, width


class CocoAnnotation(_Record):
    """An instance. Each property raises InputError where the file does not give it in its form."""

    __slots__ = ()

    @property
    def category_index(self) -> int:
        """Number of its category from 0, in the order of the category numbers."""
        number = self.get("category_id", int)
        index = self.file.index_of_category.get(number)
        if index is None:
            self.file.refuse(f"{self.where} is of category {number}, which is not in 'categories'")
        return index

    @property
    def box(self) -> tuple[float, float, float, float]:
        """The x, y, width and height in pixels."""
        box = self.get("bbox", list)
        if len(box) != 4 or not all(_is_number(value) for value in box) or min(box[2:]) < 0:
            self.file.refuse(f"'bbox' of {self.where} is {box!r:.60}, not x, y, width, height")
        return box[0], box[1], box[2], box[3]

    @property
    def area(self) -> float:
        """Area of the mask, in pixels."""
        area: float = self.get("area", (int, float))
        if not _is_number(area):
            self.file.refuse(f"'area' of {self.where} is {area}")
        return area

    @property
    def segmentation(self) -> Polygons | RunLengths:
        """Polygons (x, y, x, y, … in pixels), or a run-length code (`size` and `counts`)."""
        segmentation: Polygons | RunLengths = self.get("segmentation", (list, dict))
        if isinstance(segmentation, list):
            if not all(isinstance(polygon, list) for polygon in segmentation):
                self.file.refuse(f"'segmentation' of {self.where} is not a list of polygons")
        else:
            code = _Record(self.file, f"the segmentation of {self.where}", segmentation)
            code.get("size", list)
            code.get("counts", (list, str))
        return segmentation

    @property
    def is_crowd(self) -> bool:
        """Whether it is a group of objects that were not separated; a file without the key has none."""
        return bool(self.get("iscrowd", (int, bool), default=0))


class CocoInstances:
    """The content of an annotation file; made by `parse_instances`.

    Attributes:
        path: The file.
        numbers: COCO's numbers of the images, in ascending order.
        images: The images in this order.
        sha256: Hash of the file.
    """

    def __init__(self, path: Path) -> None:
        # Apart from the images and annotations, which refer to it: a cycle would stay in memory for a while.
        self._file = _File(path)
        images = self._parse_images()
        self.path = path
        self.sha256 = self._file.sha256
        self.numbers = sorted(images)
        self.images = [images[number] for number in self.numbers]

    def shape(self, index: int) -> tuple[int, int]:
        """Return height and width of an image; raises as `CocoImage.shape`."""
        return self.images[index].shape

    @property
    def category_names(self) -> tuple[str, ...]:
        """Names of the categories, in the order of their numbers."""
        return tuple(self._file.categories.values())

    @property
    def number_of_name(self) -> dict[str, int]:
        """The numbers of the images by file name.

        Raises:
            InputError: Two images have one name.
        """
        return self._file.by_name(
            "images", ((image.file_name, at) for at, image in zip(self.numbers, self.images, strict=True))
        )

    @property
    def annotations(self) -> list[list[CocoAnnotation]]:
        """The annotations of each image, in the order of the file; those of images that it does not list are left out.

        Raises:
            InputError: There are none, or one names no image.
        """
        return self._parsed_annotations[0]

    def union(self, index: int, shape: tuple[int, int], category: int | None = None) -> NDArray[np.bool_]:
        """Draw all instances of an image over each other, crowds included; see `union_mask`.

        Args:
            index: Index of the image.
            shape: Height and width of the picture that was annotated.
            category: Index of the category to which the instances belong; by default all are drawn.

        Raises:
            InputError: A segmentation cannot be drawn.
        """
        drawn = [one for one in self.annotations[index] if category is None or one.category_index == category]
        segmentations = [annotation.segmentation for annotation in drawn]
        try:
            return union_mask(segmentations, *shape)
        except (ValueError, TypeError) as error:
            problem = f"cannot be drawn ({error})"
            raise InputError(
                "segmentation", self.images[index].file_name, problem, "Repair the annotation file."
            ) from error

    @property
    def notice(self) -> str:
        """A line for the user about annotations that were left out, or an empty one."""
        unlisted = self._parsed_annotations[1]
        if not unlisted:
            return ""
        kind = "annotation is of an image" if len(unlisted) == 1 else "annotations are of images"
        return f"{self.path}: {len(unlisted)} {kind} that it does not list, and left out; the first: {unlisted[0]}"

    def check(self, *fields: CocoField) -> None:
        """Look at some fields of all images, annotations and categories now rather than when they are used.

        Raises:
            InputError: One is missing or malformed, or `category_name` is asked for and two categories share a name.
        """
        if "category_name" in fields:
            self._file.by_name("categories", ((name, number) for number, name in self._file.categories.items()))
        if "shape" in fields:
            for image in self.images:
                _ = image.shape
        of_annotations = [field for field in fields if field not in ("shape", "category_name")]
        for annotation in chain.from_iterable(self.annotations if of_annotations else []):
            for field in of_annotations:
                getattr(annotation, field)

    def _parse_images(self) -> dict[int, CocoImage]:
        images: dict[int, CocoImage] = {}
        for number, record in self._file.numbered("images", CocoImage):
            name, path = record.file_name, PurePosixPath(record.file_name)
            if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
                self._file.refuse(f"'file_name' of {record.where} is {name!r:.60}, which leads out of the image folder")
            images[number] = record
        return images

    @cached_property
    def _parsed_annotations(self) -> tuple[list[list[CocoAnnotation]], list[str]]:
        """The annotations of each image, and words for those of unlisted ones."""
        index_of_image = {number: index for index, number in enumerate(self.numbers)}
        annotations: list[list[CocoAnnotation]] = [[] for _ in self.images]
        unlisted = []
        for record in self._file.records("annotations", CocoAnnotation):
            number = record.get("image_id", int)
            if number in index_of_image:
                annotations[index_of_image[number]].append(record)
            else:
                unlisted.append(f"{record.where} of image {number}")
        return annotations, unlisted


_lock = threading.Lock()


def parse_instances(path: Path) -> CocoInstances:
    """Read an annotation file such as `instances_val2017.json`; the last two files are kept until they change.

    Raises:
        InputError: The file is missing or not JSON, an image has no number or name, a number is used twice, or a file
            name leads out of the image folder.
    """
    try:
        status = path.stat()
    except OSError:  # opening it says what is wrong
        return CocoInstances(path)
    with _lock:  # a second thread waits rather than parse the same file
        return _parsed(path, (status.st_ino, status.st_size, status.st_mtime_ns))


@lru_cache(maxsize=2)  # a training part and a test part
def _parsed(path: Path, state: tuple[int, ...]) -> CocoInstances:
    """Parse a file again when its state has changed."""
    return CocoInstances(path)


def forget_instances() -> None:
    """Drop the annotation files that are kept: those of COCO's training part take gigabytes."""
    with _lock:  # a file that another thread parses just now would be kept after it
        _parsed.cache_clear()


class _File:
    """The decoded file. A missing or malformed entry is refused by its name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            encoded = path.read_bytes()
            content = json.loads(encoded)
        except OSError as error:
            remedy = "COCO's annotations lie in 'annotations' beside the image folders."
            raise InputError("coco", path, f"cannot be opened ({error.strerror})", remedy) from error
        except (ValueError, RecursionError) as error:
            raise InputError("coco", path, f"is not JSON ({error})", "Download or write it again.") from error
        if not isinstance(content, dict):
            self.refuse("is not a JSON object")
        self._content = content
        self.sha256 = hashlib.sha256(encoded).hexdigest()

    def refuse(self, problem: str) -> NoReturn:
        remedy = "Repair it; https://cocodataset.org/#format-data describes the format."
        raise InputError("coco", self.path, problem, remedy)

    def records(self, key: str, kind: type[Record]) -> list[Record]:
        """Return the entries of a top-level list."""
        entries = _Record(self, "the file", self._content).get(key, list)
        for index, entry in enumerate(entries):
            if not isinstance(entry, dict):
                self.refuse(f"{key}[{index}] is not an object")
        return [kind(self, f"{key}[{index}]", entry) for index, entry in enumerate(entries)]

    def numbered(self, key: str, kind: type[Record]) -> Iterator[tuple[int, Record]]:
        """Yield the entries of a top-level list with their numbers, which must be distinct."""
        known: set[int] = set()
        for record in self.records(key, kind):
            number = record.get("id", int)
            if number in known:
                self.refuse(f"{record.where} has number {number} a second time")
            known.add(number)
            yield number, record

    def by_name(self, key: str, named: Iterable[tuple[str, int]]) -> dict[str, int]:
        """Return numbers by name, and refuse two of one name: they could not be matched to those of another file."""
        number_of_name: dict[str, int] = {}
        for name, number in named:
            other = number_of_name.setdefault(name, number)
            if other != number:
                self.refuse(f"{key} {other} and {number} are both named {name!r:.60}")
        return number_of_name

    @cached_property
    def categories(self) -> dict[int, str]:
        """Names of the categories by their numbers, in ascending order."""
        return dict(
            sorted((number, record.get("name", str)) for number, record in self.numbered("categories", _Record))
        )

    @cached_property
    def index_of_category(self) -> dict[int, int]:
        return {number: index for index, number in enumerate(self.categories)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def union_mask(segmentations: Iterable[Polygons | RunLengths], height: int, width: int) -> NDArray[np.bool_]:
    """Draw segmentations over each other.

    Args:
        segmentations: For each instance its polygons (x, y, x, y, … in pixels), or a run-length code
            (`size` = [height, width], `counts` as a list or in COCO's compressed text).
        height: Of the picture, in pixels.
        width: Of the picture, in pixels.

    Returns:
        Shape (height, width), true where any segmentation is. A polygon of fewer than three points encloses
        nothing.

    Raises:
        ValueError: A segmentation is malformed.
    """
    from pycocotools import mask as coco_mask  # here, since every reader of a configuration imports this module

    codes: list[object] = []
    for segmentation in segmentations:
        if isinstance(segmentation, list):
            polygons = [_check_polygon(polygon, height, width) for polygon in segmentation]
            # pycocotools would take four numbers for a box.
            polygons = [polygon for polygon in polygons if len(polygon) >= 6]
            codes += coco_mask.frPyObjects(polygons, height, width) if polygons else []
        else:
            counts = _check_run_lengths(segmentation, height, width)
            codes.append(coco_mask.frPyObjects({"size": [height, width], "counts": counts}, height, width))
    if not codes:
        return np.zeros((height, width), dtype=np.bool_)
    return coco_mask.decode(coco_mask.merge(codes)).astype(np.bool_)


def _check_polygon(polygon: list[float], height: int, width: int) -> list[float]:
    points = np.asarray(polygon, dtype=np.float64)
    if points.ndim != 1 or len(points) % 2:
        raise ValueError("a polygon is not a list of x, y pairs")
    size = (width, height)
    inside = (points.reshape(-1, 2) >= np.negative(size)) & (points.reshape(-1, 2) <= np.multiply(size, 2))
    if not inside.all():  # NaN is not inside either
        raise ValueError("a polygon has points further outside than the picture is large")
    return points.tolist()


def _check_run_lengths(code: Mapping[str, Any], height: int, width: int) -> list[int]:
    if list(code["size"]) != [height, width]:
        raise ValueError(f"a run-length code is for size {code['size']} in a picture of [{height}, {width}]")
    counts = code["counts"]
    if isinstance(counts, str):
        counts = _decompress(counts)
    if not all(isinstance(count, int) and count >= 0 for count in counts) or sum(counts) != height * width:
        raise ValueError("a run-length code does not fill its picture")
    return list(counts)


def _decompress(text: str) -> list[int]:
    """Decode COCO's compressed counts (rleFrString of pycocotools' maskApi.c).

    Numbers are written in groups of 5 bits, lowest first, as characters from '0' on; bit 6 says that more
    follow, bit 5 of the last group is the sign. From the fourth number on, the difference to the number two
    places before is written.
    """
    counts: list[int] = []
    value = shift = 0
    for character in text:
        group = ord(character) - ord("0")
        if not 0 <= group < 64:
            raise ValueError(f"a run-length code holds the character {character!r}")
        value |= (group & 31) << shift
        shift += 5
        if group & 32:
            continue
        if group & 16:
            value -= 1 << shift
        counts.append(value + (counts[-2] if len(counts) > 2 else 0))
        value = shift = 0
    if shift:
        raise ValueError("a run-length code ends within a number")
    return counts
