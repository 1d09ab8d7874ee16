"""Groups of images on their way through localization: which images, read from disk, errors included.

A group travels as a table of one row. Pixels and maps are plain bytes in it, which Ray's object store hands
from process to process without a copy.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import ray
from numpy.typing import NDArray

from objectaware.data.folder import Manifest
from objectaware.data.images import UnreadableImage, read_image, resize_image
from objectaware.errors import InputError

Value = TypeVar("Value")

_NO_NEGATIVES = "has no negatives: no other image that it is compared with could be read"


@dataclass(frozen=True)
class GroupPlan:
    """Which images make up which group. Arrays only, so that processes share one copy in the object store.

    Attributes:
        root: Folder of the images.
        image_ids: Paths relative to `root`, a string array.
        order: Image indices, group after group.
        group_size: Images a group, the last apart.
        filler: Image indices that are negatives of the last group besides its own.
        image_size: Side that images are squashed to, in pixels.
        negatives: Image indices that the user gave as every group's only negatives; None for the groups' own.
        needs_negatives: Whether an image without any cannot be localized.
    """

    root: str
    image_ids: pa.Array
    order: NDArray[np.int64]
    group_size: int
    filler: NDArray[np.int64]
    image_size: int
    negatives: NDArray[np.int64] | None = None
    needs_negatives: bool = False

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        *,
        group_size: int,
        seed: int,
        image_size: int,
        negatives: Sequence[str] | None = None,
        needs_negatives: bool = False,
    ) -> GroupPlan:
        """Cuts a data set into groups as its manifest says.

        Raises:
            InputError: One of the negatives is no image of the data set.
        """
        return cls(
            root=manifest.root,
            image_ids=pa.array(manifest.image_ids, pa.string()),
            order=np.concatenate(manifest.groups(group_size, seed)),
            group_size=group_size,
            filler=manifest.negatives_filler(group_size, seed),
            image_size=image_size,
            negatives=None if negatives is None else _indices(manifest, negatives),
            needs_negatives=needs_negatives,
        )

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return -(-len(self.order) // self.group_size)

    def members(self, group: int) -> NDArray[np.int64]:
        """Image indices of a group, in order."""
        return self.order[group * self.group_size : (group + 1) * self.group_size]

    def fillers(self, group: int) -> NDArray[np.int64]:
        """Image indices that are the group's negatives without being its members, or its only ones."""
        if self.negatives is not None:
            return self.negatives
        return self.filler if group == self.num_groups - 1 else self.filler[:0]

    def read(self, index: int) -> tuple[NDArray[np.uint8], tuple[int, int]]:
        """One image squashed to (image_size, image_size, 3), and its own height and width.

        Raises:
            UnreadableImage: The file gives no picture.
        """
        image = read_image(Path(self.root, self.image_ids[int(index)].as_py()))
        return resize_image(image, (self.image_size, self.image_size)), (image.shape[0], image.shape[1])


def _indices(manifest: Manifest, negatives: Sequence[str]) -> NDArray[np.int64]:
    index_of = {image_id: index for index, image_id in enumerate(manifest.image_ids)}
    for image_id in negatives:
        if image_id not in index_of:
            remedy = "Give paths relative to the data's folder."
            raise InputError("negatives", image_id, f"is no image of the data set in {manifest.root}", remedy)
    return np.array([index_of[image_id] for image_id in dict.fromkeys(negatives)], dtype=np.int64)


def faults_travel(step: Callable[..., pa.Table]) -> Callable[..., pa.Table]:
    """Lets a step's exception travel on as the group's `fault`: Ray Data would hand over its text alone."""

    @wraps(step)
    def wrapped(*args: Any, **kwargs: Any) -> pa.Table:  # noqa: ANN401 - whatever the step takes
        batch = next(argument for argument in args if isinstance(argument, pa.Table))
        if "fault" in batch.column_names:
            return batch
        try:
            return step(*args, **kwargs)
        except Exception as error:
            error.add_note(f"On a worker:\n{traceback.format_exc()}")
            return pa.table({"fault": pa.array([_pickled(error)], pa.binary())})

    return wrapped


def _pickled(error: Exception) -> bytes:
    try:
        content = pickle.dumps(error)
        pickle.loads(content)
    except Exception:  # of a library, with arguments that do not survive pickling
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return content


@faults_travel
def read_group(batch: pa.Table, plan: Any) -> pa.Table:  # noqa: ANN401 - Ray's references are Any
    """`group_table` of the group that a row names.

    Args:
        batch: One row with the column `group`.
        plan: Reference to the `GroupPlan`.
    """
    return group_table(ray.get(plan), batch["group"][0].as_py())


def group_table(groups: GroupPlan, group: int) -> pa.Table:
    """Reads and squashes the images of a group.

    Args:
        groups: The plan.
        group: Number of the group.

    Returns:
        One row: `group`; `image_ids`, `heights`, `widths` and `errors` of all members; `pixels` of those that
        could be read and have the negatives that they need, (n, S, S, 3); `filler`, pixels of further negatives,
        (m, S, S, 3), and `filler_ids`.

    Raises:
        InputError: One of the negatives that the user gave cannot be read.
    """
    pictures, sizes, errors = [], [], []
    for index in groups.members(group):
        try:
            image, size = groups.read(index)
        except UnreadableImage as error:
            pictures.append(b"")
            sizes.append((0, 0))
            errors.append(error.reason)
        else:
            pictures.append(image.tobytes())
            sizes.append(size)
            errors.append("")
    filler = list(_readable(groups, groups.fillers(group)))
    image_ids = groups.image_ids.take(pa.array(groups.members(group))).to_pylist()
    if groups.needs_negatives:
        own = [] if groups.negatives is not None else _without_errors(image_ids, errors)
        negatives = {*own, *(image_id for image_id, _ in filler)}
        for image_id in _without_errors(image_ids, errors):
            if negatives <= {image_id}:
                errors[image_ids.index(image_id)] = _NO_NEGATIVES
    return pa.table(
        {
            "group": pa.array([group], pa.int64()),
            "image_ids": pa.array([image_ids]),
            "heights": pa.array([[height for height, _ in sizes]], pa.list_(pa.int32())),
            "widths": pa.array([[width for _, width in sizes]], pa.list_(pa.int32())),
            "errors": pa.array([errors], pa.list_(pa.string())),
            "pixels": pa.array([b"".join(_without_errors(pictures, errors))], pa.large_binary()),
            "filler": pa.array([b"".join(content for _, content in filler)], pa.large_binary()),
            "filler_ids": pa.array([[image_id for image_id, _ in filler]], pa.list_(pa.string())),
        }
    )


def _without_errors(values: Sequence[Value], errors: Sequence[str]) -> list[Value]:
    return [value for value, error in zip(values, errors, strict=True) if not error]


def _readable(groups: GroupPlan, indices: NDArray[np.int64]) -> Iterator[tuple[str, bytes]]:
    for index in indices:
        image_id = groups.image_ids[int(index)].as_py()
        try:
            yield image_id, groups.read(index)[0].tobytes()
        except UnreadableImage as error:
            if groups.negatives is not None:
                raise InputError("negatives", image_id, error.reason, "Leave it out.") from error
            continue  # reported with the group that it is a member of
