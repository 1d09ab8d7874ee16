"""The steps of localization that Ray runs in its own processes: read a group of images, localize, refine and store.

A group travels as a table of one row. Pixels and maps are plain bytes in it. Ray's object store hands them from process
to process without a copy.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np
import pyarrow as pa
import ray
import torch
from numpy.typing import NDArray

from objectaware.config import LocalizeConfig, Localizer
from objectaware.data.folder import Manifest
from objectaware.data.images import UnreadableImage, read_image, resize_image
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.localize.localizer import Group, Network, SoftMaps
from objectaware.localize.mask_store import ITERATIONS_NAME, MaskRow, write_shard
from objectaware.localize.objects import dense_crf, extract_boxes, keep_large_components
from objectaware.process import restore_collector

Value = TypeVar("Value")
Scalar = TypeVar("Scalar", bound=np.generic)

_NO_NEGATIVES = "has no negatives: no other image that it is compared with could be read"

NUM_KEPT_IMAGES = 12
"""Number of images whose iterations are kept with `record_iterations`."""


@dataclass
class Picture:
    """An image of a group as it was read.

    Attributes:
        image_id: Path relative to the folder of the images.
        pixels: The image squashed to (S, S, 3), as bytes; empty if it cannot be read.
        size: Its own height and width; zeros if it cannot be read.
        error: Why it cannot be read or localized; empty if it can.
    """

    image_id: str
    pixels: bytes
    size: tuple[int, int]
    error: str


@dataclass(frozen=True)
class GroupPlan:
    """Assign images to groups. Hold arrays only, so that processes share one copy in the object store.

    Attributes:
        root: Folder of the images.
        image_ids: Paths relative to `root`, a string array.
        order: Image indices, group after group.
        group_size: Images per group; the last group may have fewer.
        filler: Image indices that are further negatives of the last group.
        image_size: Side that images are squashed to, in pixels.
        negatives: Image indices that the user named as every group's only negatives; None for the group's own images.
        needs_negatives: Whether an image without negatives cannot be localized.
    """

    root: str
    image_ids: pa.Array
    order: NDArray[np.int64]
    group_size: int
    filler: NDArray[np.int64]
    image_size: int
    negatives: NDArray[np.int64] | None
    needs_negatives: bool

    @classmethod
    def of(cls, manifest: Manifest, localizer: Localizer, *, group_size: int, seed: int, image_size: int) -> GroupPlan:
        """Cut a data set into groups by its manifest.

        Args:
            manifest: The images.
            localizer: Says which negatives an image has.
            group_size: Images per group.
            seed: Seed of the groups.
            image_size: Side that images are squashed to, in pixels.

        Raises:
            InputError: One of the negatives is not an image of the data set.
        """
        negatives = localizer.only_negatives
        return cls(
            root=manifest.root,
            image_ids=pa.array(manifest.image_ids, pa.string()),
            order=np.concatenate(manifest.groups(group_size, seed)),
            group_size=group_size,
            filler=manifest.negatives_filler(group_size, seed),
            image_size=image_size,
            negatives=None if negatives is None else negative_indices(manifest, negatives),
            needs_negatives=localizer.needs_negatives,
        )

    @property
    def num_groups(self) -> int:
        """Return the number of groups."""
        return -(-len(self.order) // self.group_size)

    def members(self, group: int) -> NDArray[np.int64]:
        """Return the image indices of a group, in order."""
        return self.order[group * self.group_size : (group + 1) * self.group_size]

    def fillers(self, group: int) -> NDArray[np.int64]:
        """Return the image indices of the group's further negatives, or of its only ones."""
        if self.negatives is not None:
            return self.negatives
        return self.filler if group == self.num_groups - 1 else self.filler[:0]

    def read(self, indices: NDArray[np.int64]) -> list[Picture]:
        """Read images and squash them to (image_size, image_size, 3)."""
        pictures = []
        for image_id in self.image_ids.take(pa.array(indices)).to_pylist():
            try:
                image = read_image(Path(self.root, image_id))
            except UnreadableImage as error:
                pictures.append(Picture(image_id, b"", (0, 0), error.reason))
            else:
                squashed = resize_image(image, (self.image_size, self.image_size))
                pictures.append(Picture(image_id, squashed.tobytes(), image.shape[:2], ""))
        return pictures


def negative_indices(manifest: Manifest, negatives: Sequence[str]) -> NDArray[np.int64]:
    """Return the image indices (n,) of the negatives that the user named, each once.

    Raises:
        InputError: One of them is not an image of the data set.
    """
    index_of = {image_id: index for index, image_id in enumerate(manifest.image_ids)}
    for image_id in negatives:
        if image_id not in index_of:
            remedy = "Give paths relative to the data's folder."
            raise InputError("negatives", image_id, f"is not an image of the data set in {manifest.root}", remedy)
    return np.array([index_of[image_id] for image_id in dict.fromkeys(negatives)], dtype=np.int64)


def read_group(batch: pa.Table, plan: Any) -> pa.Table:  # noqa: ANN401 - Ray's references are Any
    """Return `group_table` of the group in a row.

    Args:
        batch: One row with the column `group`.
        plan: Reference to the `GroupPlan`.
    """
    return group_table(ray.get(plan), batch["group"][0].as_py())


def group_table(groups: GroupPlan, group: int) -> pa.Table:
    """Read and squash the images of a group.

    Args:
        groups: The plan.
        group: Number of the group.

    Returns:
        One row: `group`; `image_ids`, `heights`, `widths` and `errors` of all members; `pixels` (n, S, S, 3) of the
        members without an error; `filler`, pixels (m, S, S, 3) of further negatives, and `filler_ids`.

    Raises:
        InputError: One of the negatives that the user named cannot be read.
    """
    members, filler = groups.read(groups.members(group)), groups.read(groups.fillers(group))
    for picture in filler:
        if picture.error and groups.negatives is not None:  # an image of another group is reported with that group
            raise InputError("negatives", picture.image_id, picture.error, "Leave it out.")
    filler = [picture for picture in filler if not picture.error]
    readable = [picture for picture in members if not picture.error]
    if groups.needs_negatives:
        compared = filler if groups.negatives is not None else [*readable, *filler]
        negatives = {picture.image_id for picture in compared}
        for picture in readable:
            if negatives <= {picture.image_id}:
                picture.error = _NO_NEGATIVES
    pixels = b"".join(picture.pixels for picture in members if not picture.error)
    return pa.table(
        {
            "group": pa.array([group], pa.int64()),
            "image_ids": pa.array([[picture.image_id for picture in members]]),
            "heights": pa.array([[picture.size[0] for picture in members]], pa.list_(pa.int32())),
            "widths": pa.array([[picture.size[1] for picture in members]], pa.list_(pa.int32())),
            "errors": pa.array([[picture.error for picture in members]], pa.list_(pa.string())),
            "pixels": pa.array([pixels], pa.large_binary()),
            "filler": pa.array([b"".join(picture.pixels for picture in filler)], pa.large_binary()),
            "filler_ids": pa.array([[picture.image_id for picture in filler]], pa.list_(pa.string())),
        }
    )


def _without_errors(values: Sequence[Value], errors: Sequence[str]) -> list[Value]:
    return [value for value, error in zip(values, errors, strict=True) if not error]


class CamActor:
    """Localize the images of a group.

    The checkpoint is loaded with the first group, so that a bad one is reported like any other error.

    Add the columns
    - `cams`: soft masks (n, S, S) float32 of the images that could be read;
    - `iterations`: with `record_iterations`, the CAMs (T, m, S, S) uint8 of each iteration for the first images of
      group 0, whose members are random; otherwise empty;
    - `waiting_seconds`: how long this process waited for the group, 0 for its first one;
    - `working_seconds`: how long it worked on the group.

    Args:
        config: Configuration of the localization.
    """

    def __init__(self, config: LocalizeConfig) -> None:
        restore_collector()
        self._config = config
        self._ended: float | None = None
        torch.set_num_threads(config.execution.num_compute_threads)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Run the localizer on one group; drop the fillers' results."""
        started = time.perf_counter()
        waiting_seconds = 0.0 if self._ended is None else started - self._ended
        size, group = self._config.image_size, batch["group"][0].as_py()
        pixels, filler = (_array(batch, column, np.uint8, size, size, 3) for column in ("pixels", "filler"))
        readable = _without_errors(batch["image_ids"][0].as_py(), batch["errors"][0].as_py())
        filler_ids = batch["filler_ids"][0].as_py()
        is_self = np.array(readable, dtype=object)[:, None] == np.array(filler_ids, dtype=object)[None]
        iterations: list[bytes] = []

        def keep(cams: NDArray[np.float32]) -> None:
            if self._config.execution.record_iterations and group == 0:
                iterations.append(np.rint(cams[:NUM_KEPT_IMAGES] * 255).astype(np.uint8).tobytes())

        cams = np.zeros(pixels.shape[:3], dtype=np.float32)
        if len(pixels):
            seed = int(np.random.SeedSequence([self._config.seed, group]).generate_state(1)[0])
            cams = self._soft_maps(Group(pixels, filler, is_self, seed, keep))
        self._ended = time.perf_counter()
        return (
            batch.drop_columns(["filler", "filler_ids"])
            .append_column("cams", pa.array([cams.tobytes()], pa.large_binary()))
            .append_column("iterations", pa.array([b"".join(iterations)], pa.large_binary()))
            .append_column("waiting_seconds", pa.array([waiting_seconds]))
            .append_column("working_seconds", pa.array([self._ended - started]))
        )

    @cached_property
    def _soft_maps(self) -> SoftMaps:
        device = torch.device("cuda" if self._config.execution.use_gpu else "cpu")
        untrained_seed = self._config.seed if self._config.untrained else None
        return self._config.localizer.build(Network(self._config.checkpoint, device, untrained_seed))


class CrfActor:
    """Refine the soft masks of a group, find boxes and write the group's shard.

    Args:
        config: Configuration of the localization.
        store: Folder of the mask store.
    """

    def __init__(self, config: LocalizeConfig, store: Storage) -> None:
        restore_collector()
        self._config = config
        self._store = store
        cv2.setNumThreads(1)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Write one group's shard.

        Returns:
            One row: `group`, `num_images`, `failed_ids` with their `reasons`, and the seconds of `CamActor`.
        """
        group = batch["group"][0].as_py()
        image_ids, errors = batch["image_ids"][0].as_py(), batch["errors"][0].as_py()
        # Before the shard, since a shard marks its group as done.
        self._write_iterations(batch, _without_errors(image_ids, errors)[:NUM_KEPT_IMAGES])
        write_shard(self._store, group, self._rows(batch, image_ids, errors))
        return pa.table(
            {
                "group": pa.array([group], pa.int64()),
                "num_images": pa.array([len(image_ids)], pa.int64()),
                "failed_ids": pa.array([list(compress(image_ids, errors))], pa.list_(pa.string())),
                "reasons": pa.array([list(filter(None, errors))], pa.list_(pa.string())),
                "waiting_seconds": batch["waiting_seconds"],
                "working_seconds": batch["working_seconds"],
            }
        )

    def _rows(self, batch: pa.Table, image_ids: list[str], errors: list[str]) -> Iterator[MaskRow]:
        """Yield one row per member. A full-size mask lives only until the next row."""
        size = self._config.image_size
        images, cams = _array(batch, "pixels", np.uint8, size, size, 3), _array(batch, "cams", np.float32, size, size)
        readable = iter(zip(images, cams, strict=True))
        heights, widths = batch["heights"][0].as_py(), batch["widths"][0].as_py()
        for image_id, height, width, error in zip(image_ids, heights, widths, errors, strict=True):
            if error:
                yield MaskRow(image_id, width, height, status="failed", error=error)
                continue
            image, cam = next(readable)
            # A CRF would find something even in an empty mask.
            refined = dense_crf(image, cam) if self._config.crf and cam.any() else cam
            mask, boxes = self._cut(refined, height, width)
            kept = refined if self._config.crf else None
            yield MaskRow(image_id, width, height, cam=cam, refined=kept, mask=mask, boxes=boxes)

    def _cut(self, soft: NDArray[np.float32], height: int, width: int) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """Return the mask (height, width) and boxes (n, 4) of one image from its soft mask (S, S)."""
        if not soft.any():
            return np.zeros((height, width), dtype=np.bool_), np.zeros((0, 4), dtype=np.float32)
        threshold, min_area = self._config.mask_threshold, self._config.min_box_area
        regions = keep_large_components(soft >= threshold, min_area=min_area)
        boxes = extract_boxes(regions, min_area=min_area, margin=self._config.box_margin)
        # Enlarge the soft mask, not the binary one, so that edges stay smooth.
        enlarged = cv2.resize(soft, (width, height), interpolation=cv2.INTER_LINEAR)
        return enlarged >= threshold, boxes

    def _write_iterations(self, batch: pa.Table, image_ids: list[str]) -> None:
        if batch["iterations"][0].as_buffer().size:
            size, buffer = self._config.image_size, io.BytesIO()
            cams = _array(batch, "iterations", np.uint8, len(image_ids), size, size)
            np.savez_compressed(buffer, image_ids=np.array(image_ids), cams=cams)
            self._store.write_bytes(ITERATIONS_NAME, buffer.getvalue())


def localize_group(plan: GroupPlan, config: LocalizeConfig, store: Storage, group: int) -> pa.Table:
    """Run one group through all steps as one task, so that small data sets need not wait for actors to start.

    Args:
        plan: The groups.
        config: Configuration of the localization.
        store: Folder of the mask store.
        group: Number of the group.

    Returns:
        The row of `CrfActor`.
    """
    return CrfActor(config, store)(CamActor(config)(group_table(plan, group)))


def _array(batch: pa.Table, column: str, dtype: type[Scalar], *shape: int) -> NDArray[Scalar]:
    """Return the arrays (n, *shape) of a column, without a copy."""
    return np.frombuffer(batch[column][0].as_buffer(), dtype=dtype).reshape(-1, *shape)
