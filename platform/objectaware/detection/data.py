"""COCO's images and objects as the network takes them, and the batches of an epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from itertools import count

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from objectaware.augment.randomness import counter_uniforms
from objectaware.config import DataConfig
from objectaware.data.coco_json import CocoAnnotation, CocoField, union_mask
from objectaware.data.dataset import Dataset
from objectaware.data.images import UnreadableImage, normalise, resize_image
from objectaware.data.sets.coco import CocoDataset
from objectaware.detection.network import Target
from objectaware.errors import InputError
from objectaware.training.loop import prefetched
from objectaware.training.session import Session

_STREAM_CHANGES, _STREAM_KEYS = 10, 11
_FIELDS: tuple[CocoField, ...] = ("shape", "category_index", "category_name", "box", "segmentation", "is_crowd")
Box = tuple[float, float, float, float]
Batch = tuple[list[Tensor], list[Target]]


def open_coco(data: DataConfig, *more_fields: CocoField) -> CocoDataset:
    """Open images and annotations of a configuration of a layout that has them in COCO's format.

    Args:
        data: The configuration.
        more_fields: Fields of the annotations to read besides those that training uses.

    Raises:
        InputError: Something is missing or malformed.
    """
    return Dataset.of(data).instances(*_FIELDS, *more_fields)


class TrainingImages:
    """Images with objects to learn from, resized and mirrored at random.

    Crowds are left out, and so are images without any other object. Sizes and flips are a function of seed, epoch and
    image. Only categories that have an object get a label, so that a category without objects changes nothing.

    Args:
        coco: The data set.
        short_sides: Short sides in pixels, of which each image gets one at random …
        max_side: … unless the long one would be longer than this.
        seed: Seed of the run.

    Attributes:
        category_names: Names of the categories that have an object, of which the first has label 1.

    Raises:
        InputError: No image has an object.

    Source:
        detectron2, data/build.py (`filter_images_with_only_crowd_annotations`) and data/dataset_mapper.py.
    """

    def __init__(self, coco: CocoDataset, *, short_sides: Sequence[int], max_side: int, seed: int) -> None:
        self._coco = coco
        self._short_sides = short_sides
        self._max_side = max_side
        self._seed = seed
        self._places = [index for index in range(len(coco)) if _usable(coco, index)]
        if not self._places:
            problem = "has no image with an object that is not a crowd"
            raise InputError("data", coco.images.root, problem, "Give COCO's images with their annotations.")
        used = usable_categories(coco)
        self.category_names = tuple(coco.category_names[category] for category in used)
        self._label_of_category = {category: label for label, category in enumerate(used, start=1)}

    def __len__(self) -> int:
        return len(self._places)

    def are_wide(self) -> NDArray[np.bool_]:
        """Return whether each image is wider than high as annotated, (N,)."""
        sizes = [self._coco.size(place) for place in self._places]
        return np.array([width > height for height, width in sizes], dtype=np.bool_)

    def load(self, index: int, *, epoch: int, iteration: int) -> tuple[Tensor, Target]:
        """Load an image, (3, H, W) normalised, and its objects as `MaskRCNN` takes them.

        Args:
            index: Index of the image.
            epoch: Epoch, from which its size and flip are drawn.
            iteration: Iteration, from which its anchors and regions are drawn.

        Raises:
            InputError: The image or a mask of it cannot be read.
        """
        place = self._places[index]
        which = np.array([index])
        choice, coin = counter_uniforms(self._seed, epoch, which, 2, stream=_STREAM_CHANGES)[0]
        image = read_pixels(self._coco, place)
        size = resized_shape(image.shape[:2], self._short_sides[int(choice * len(self._short_sides))], self._max_side)
        flip = bool(coin < 0.5)
        objects, turn = _usable(self._coco, place), self._coco.turn(place)
        height, width = turn.shape
        annotated_size = turn.shape_before(size)
        masks = np.stack([turn.pixels(draw_mask(one, turn.shape, annotated_size)) for one in objects])
        boxes = np.array([_clipped(one, width, height) for one in objects], dtype=np.float32)
        boxes *= np.array([annotated_size[1] / width, annotated_size[0] / height] * 2, dtype=np.float32)
        boxes = turn.boxes(boxes, annotated_size)
        if flip:
            boxes[:, [0, 2]] = size[1] - boxes[:, [2, 0]]
            masks = np.ascontiguousarray(masks[:, :, ::-1])
        key = counter_uniforms(self._seed, iteration, which, 1, stream=_STREAM_KEYS)[0, 0]
        return prepared(image, size, flip=flip), {
            "boxes": torch.from_numpy(boxes),
            "labels": torch.tensor([self._label_of_category[one.category_index] for one in objects]),
            "masks": torch.from_numpy(masks),
            "key": torch.tensor(int(key * 2**53)),
        }


def read_pixels(coco: CocoDataset, index: int) -> NDArray[np.uint8]:
    """Read an image, (H, W, 3), upright, of the size that the annotations are for.

    Raises:
        InputError: It cannot be read, or has another size.
    """
    name = str(coco.images.path(index))
    try:
        image = coco.images.read(index)
    except UnreadableImage as error:
        raise InputError("data", name, error.reason, "Replace the file.") from error
    height, width = coco.turn(index).upright_shape
    rows, columns = image.shape[:2]
    if (rows, columns) != (height, width):
        problem = f"is {columns} × {rows} pixels, its annotations are for {width} × {height}"
        raise InputError("data", name, problem, "Replace the file.")
    return image


def prepared(image: NDArray[np.uint8], size: tuple[int, int], *, flip: bool = False) -> Tensor:
    """Return an image (H, W, 3) resized, mirrored where `flip`, and normalised: (3, height, width)."""
    resized = resize_image(image, size)
    return normalise(np.ascontiguousarray(resized[:, ::-1] if flip else resized)[None])[0]


def resized_shape(shape: tuple[int, ...], short_side: int, max_side: int) -> tuple[int, int]:
    """Return height and width of an image resized to a short side, or to `max_side` if the long one would exceed it.

    Source:
        detectron2, data/transforms/augmentation_impl.py, `ResizeShortestEdge.get_output_shape`.
    """
    height, width = shape
    scale = min(short_side / min(height, width), max_side / max(height, width))
    return int(height * scale + 0.5), int(width * scale + 0.5)


def draw_mask(annotation: CocoAnnotation, shape: tuple[int, int], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Draw an object in the resized image: polygons at the new size, run lengths by the nearest pixel.

    Args:
        annotation: Annotation of the object.
        shape: Height and width of the image as annotated.
        size: Height and width wanted.

    Returns:
        0 or 1, (height, width).

    Raises:
        InputError: The segmentation is malformed.
    """
    segmentation, (height, width) = annotation.segmentation, size
    try:
        if isinstance(segmentation, list):
            scale = (width / shape[1], height / shape[0])
            polygons = [[value * scale[place % 2] for place, value in enumerate(one)] for one in segmentation]
            return union_mask([polygons], height, width).astype(np.uint8)
        mask = union_mask([segmentation], *shape).astype(np.uint8)
    except (ValueError, TypeError) as error:
        remedy = "Repair the annotation file."
        raise InputError("segmentation", annotation.box, f"cannot be drawn ({error})", remedy) from error
    return np.asarray(cv2.resize(mask, (width, height), interpolation=cv2.INTER_NEAREST), dtype=np.uint8)


def usable_categories(coco: CocoDataset) -> dict[int, int]:
    """Count the objects that are not crowds and have a box and an outline, by category index in ascending order.

    Categories without such an object are absent.
    """
    numbers = Counter(one.category_index for index in range(len(coco)) for one in _usable(coco, index))
    return dict(sorted(numbers.items()))


def _usable(coco: CocoDataset, index: int) -> list[CocoAnnotation]:
    """Return an image's objects that are not crowds and have a box and an outline."""
    height, width = coco.size(index)
    found = []
    for one in coco.annotations(index):
        left, top, right, bottom = _clipped(one, width, height)
        if not one.is_crowd and right - left > 1e-5 and bottom - top > 1e-5 and one.segmentation:
            found.append(one)
    return found


def _clipped(annotation: CocoAnnotation, width: int, height: int) -> Box:
    x, y, box_width, box_height = annotation.box
    left, right = (min(max(value, 0.0), width) for value in (x, x + box_width))
    top, bottom = (min(max(value, 0.0), height) for value in (y, y + box_height))
    return left, top, right, bottom


class BatchPlan:
    """Batches of images, a function of seed and iteration.

    An epoch goes through the images in random order. Wide and tall images fill separate batches, which need
    little padding. The rest of both at the end of an epoch is put together; less than a full batch is left out.

    Args:
        is_wide: Whether each image is wider than high, (N,).
        batch_size: Images per batch.
        seed: Seed of the run.

    Attributes:
        batches_per_epoch: Number of full batches per epoch.

    Source:
        detectron2, data/common.py, `AspectRatioGroupedDataset`, whose groups continue from epoch to epoch.
    """

    def __init__(self, is_wide: NDArray[np.bool_], batch_size: int, *, seed: int) -> None:
        assert len(is_wide) >= batch_size, "fewer images than one batch takes"
        self._is_wide = is_wide
        self._batch_size = batch_size
        self._seed = seed
        self._batches = lru_cache(maxsize=1)(self._draw)
        self.batches_per_epoch = len(is_wide) // batch_size

    def batch(self, iteration: int) -> NDArray[np.int64]:
        """Return the indices (batch size,) of an iteration's images; iterations count from 0."""
        epoch, place = divmod(iteration, self.batches_per_epoch)
        batch: NDArray[np.int64] = self._batches(epoch)[place]
        return batch

    def _draw(self, epoch: int) -> NDArray[np.int64]:
        generator = np.random.default_rng([self._seed, epoch])
        waiting: dict[bool, list[int]] = {True: [], False: []}
        batches: list[list[int]] = []
        for index in generator.permutation(len(self._is_wide)).tolist():
            group = waiting[bool(self._is_wide[index])]
            group.append(index)
            if len(group) == self._batch_size:
                batches.append(list(group))
                group.clear()
        rest = waiting[True] + waiting[False]
        if len(rest) >= self._batch_size:
            batches.append(rest[: self._batch_size])
        return np.array(batches, dtype=np.int64)


def load_batches(
    images: TrainingImages, plan: BatchPlan, first: int, session: Session, num_threads: int
) -> Iterator[Batch]:
    """Load one worker's share of the batch of every iteration onto its device, without end.

    Args:
        images: The images.
        plan: Which of them are in which batch.
        first: Iteration to begin with, from 0.
        session: This worker's device and its place among the others, whose number divides the batch.
        num_threads: Threads that decode, resize and draw.
    """

    def submit(iteration: int) -> list[Future[tuple[Tensor, Target]]]:
        share = np.split(plan.batch(iteration), session.world_size)[session.rank].tolist()
        epoch = iteration // plan.batches_per_epoch
        return [pool.submit(images.load, index, epoch=epoch, iteration=iteration) for index in share]

    with ThreadPoolExecutor(num_threads, thread_name_prefix="images") as pool:
        for _, loaded in prefetched(count(first), submit, ahead=2):
            targets = [
                {name: value if name == "key" else value.to(session.device) for name, value in target.items()}
                for _, target in loaded
            ]
            yield [image.to(session.device) for image, _ in loaded], targets
