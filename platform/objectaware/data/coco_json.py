"""Read a COCO instance annotation file, and refuse one that is malformed with a message that says where."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from objectaware.errors import InputError

Polygons = list[list[float]]
RunLengths = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CocoImage:
    """A picture: its path relative to the image folder, and its size in pixels."""

    file_name: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class CocoAnnotation:
    """An instance.

    Attributes:
        category_index: From 0, in the order of the category numbers.
        box: x, y, width, height in pixels.
        area: Of the mask, in pixels.
        segmentation: Polygons (x, y, x, y, … in pixels), or a run-length code (`size` and `counts`).
        is_crowd: Whether it is a group of objects that were not told apart.
    """

    category_index: int
    box: tuple[float, float, float, float]
    area: float
    segmentation: Polygons | RunLengths
    is_crowd: bool = False


@dataclass(frozen=True, slots=True)
class CocoInstances:
    """What a file holds: images in the order of their numbers, these, the annotations of each, category names."""

    numbers: list[int]
    images: list[CocoImage]
    annotations: list[list[CocoAnnotation]]
    category_names: tuple[str, ...]


def parse_instances(path: Path) -> CocoInstances:
    """Read an annotation file such as `instances_val2017.json`.

    Raises:
        InputError: The file is missing or not JSON, a key is missing or of the wrong type, a number is used
            twice or unknown, or a file name leads out of the image folder.
    """
    file = _File(path)
    category_index_of, category_names = _parse_categories(file)
    images = _parse_images(file)
    index_of = {number: index for index, number in enumerate(images)}
    annotations: list[list[CocoAnnotation]] = [[] for _ in images]
    for where, record in file.records("annotations"):
        image_number = file.get(record, "image_id", int, where)
        category_number = file.get(record, "category_id", int, where)
        if image_number not in index_of:
            file.refuse(f"{where} belongs to image {image_number}, which is not in 'images'")
        if category_number not in category_index_of:
            file.refuse(f"{where} is of category {category_number}, which is not in 'categories'")
        annotation = _parse_annotation(file, where, record, category_index_of[category_number])
        annotations[index_of[image_number]].append(annotation)
    return CocoInstances(list(images), list(images.values()), annotations, category_names)


def image_numbers(path: Path) -> dict[str, int]:
    """Read the numbers of the images in an annotation file, by file name.

    Raises:
        InputError: The file is missing or malformed, or two images have one name.
    """
    file = _File(path)
    numbers: dict[str, int] = {}
    for number, image in _parse_images(file).items():
        if numbers.setdefault(image.file_name, number) != number:
            file.refuse(f"images {numbers[image.file_name]} and {number} are both named {image.file_name!r:.60}")
    return numbers


class _File:
    """The decoded file, with access that names what it misses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            content = json.loads(path.read_bytes())
        except OSError as error:
            remedy = "COCO's annotations lie in 'annotations' beside the image folders."
            raise InputError("coco", path, f"cannot be opened ({error.strerror})", remedy) from error
        except (ValueError, RecursionError) as error:
            raise InputError("coco", path, f"is not JSON ({error})", "Download or write it again.") from error
        if not isinstance(content, dict):
            self.refuse("is not a JSON object")
        self._content = content

    def refuse(self, problem: str) -> NoReturn:
        remedy = "Repair it; https://cocodataset.org/#format-data describes the format."
        raise InputError("coco", self.path, problem, remedy)

    def records(self, key: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the entries of a top-level list, each with words for where it is."""
        entries = self.get(self._content, key, list, "the file")
        for index, entry in enumerate(entries):
            if not isinstance(entry, dict):
                self.refuse(f"{key}[{index}] is not an object")
        return [(f"{key}[{index}]", entry) for index, entry in enumerate(entries)]

    def get(self, record: Mapping[str, Any], key: str, kind: type | tuple[type, ...], where: str) -> Any:  # noqa: ANN401
        if key not in record:
            self.refuse(f"{where} has no '{key}'")
        value = record[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            self.refuse(f"'{key}' of {where} is {value!r:.60}")
        return value


def _parse_categories(file: _File) -> tuple[dict[int, int], tuple[str, ...]]:
    names: dict[int, str] = {}
    for where, record in file.records("categories"):
        number = file.get(record, "id", int, where)
        if number in names:
            file.refuse(f"{where} has number {number} a second time")
        names[number] = file.get(record, "name", str, where)
    numbers = sorted(names)
    return {number: index for index, number in enumerate(numbers)}, tuple(names[number] for number in numbers)


def _parse_images(file: _File) -> dict[int, CocoImage]:
    images: dict[int, CocoImage] = {}
    for where, record in file.records("images"):
        number = file.get(record, "id", int, where)
        if number in images:
            file.refuse(f"{where} has number {number} a second time")
        name = file.get(record, "file_name", str, where)
        path = PurePosixPath(name)
        if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
            file.refuse(f"'file_name' of {where} is {name!r:.60}, which leads out of the image folder")
        width, height = (file.get(record, key, int, where) for key in ("width", "height"))
        if width < 1 or height < 1:
            file.refuse(f"the size of {where} is {width} x {height}")
        images[number] = CocoImage(name, width, height)
    return {number: images[number] for number in sorted(images)}


def _parse_annotation(file: _File, where: str, record: dict[str, Any], category_index: int) -> CocoAnnotation:
    box = file.get(record, "bbox", list, where)
    if len(box) != 4 or not all(_is_number(value) for value in box) or min(box[2:]) < 0:
        file.refuse(f"'bbox' of {where} is {box!r:.60}, not x, y, width, height")
    area = file.get(record, "area", (int, float), where)
    if not _is_number(area):
        file.refuse(f"'area' of {where} is {area}")
    segmentation = file.get(record, "segmentation", (list, dict), where)
    if isinstance(segmentation, list):
        if not all(isinstance(polygon, list) for polygon in segmentation):
            file.refuse(f"'segmentation' of {where} is not a list of polygons")
    else:
        file.get(segmentation, "size", list, f"the segmentation of {where}")
        file.get(segmentation, "counts", (list, str), f"the segmentation of {where}")
    is_crowd = bool(file.get({"iscrowd": 0, **record}, "iscrowd", int, where))
    return CocoAnnotation(category_index, (box[0], box[1], box[2], box[3]), area, segmentation, is_crowd)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
