"""The processes of localization that keep something between groups: a localizer its network, CRF its store."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from objectaware import collector
from objectaware.config import LocalizeConfig
from objectaware.data.storage import Storage
from objectaware.distributed.localize_groups import GroupPlan, faults_travel, group_table
from objectaware.localize.boxes import extract_boxes, keep_large_components
from objectaware.localize.crf import dense_crf
from objectaware.localize.localizer import Group, Network, SoftMaps
from objectaware.localize.mask_store import ITERATIONS_NAME, MaskRow, write_shard

NUM_KEPT_IMAGES = 12
"""Images whose iterations are kept where that was asked for."""


class CamActor:
    """Adds the column `cams`: the soft masks of the images that could be read, (n, S, S) float32.

    And `iterations`: where asked for, the CAM of each iteration of the first images of the first group, which is a
    random one, (T, m, S, S) uint8; else nothing. And `waiting_seconds` and `working_seconds`: how long this process
    waited for the group, the first apart, and worked on it. The checkpoint is loaded with the first group, so that a
    bad one is reported as any other error.

    Args:
        config: `LocalizeConfig` as plain values.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        collector.restore()
        self._config = LocalizeConfig.model_validate(config)
        self._ended: float | None = None
        torch.set_num_threads(self._config.execution.num_compute_threads)

    @faults_travel
    def __call__(self, batch: pa.Table) -> pa.Table:
        """Runs the localizer on one group; the filler's results are dropped."""
        started = time.perf_counter()
        waiting_seconds = 0.0 if self._ended is None else started - self._ended
        size, group = self._config.image_size, batch["group"][0].as_py()
        pixels, filler = _images(batch, "pixels", size), _images(batch, "filler", size)
        readable = [name for name, error in zip(*_columns(batch, "image_ids", "errors"), strict=True) if not error]
        (filler_ids,) = _columns(batch, "filler_ids")
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
        return self._config.localizer.build(Network(self._config.checkpoint, device))


class CrfActor:
    """Refines the soft masks of a group, finds boxes and writes the group's shard.

    Args:
        config: `LocalizeConfig` as plain values.
        store: Folder of the mask store.
    """

    def __init__(self, config: dict[str, Any], store: Storage) -> None:
        collector.restore()
        self._config = LocalizeConfig.model_validate(config)
        self._store = store
        cv2.setNumThreads(1)

    @faults_travel
    def __call__(self, batch: pa.Table) -> pa.Table:
        """Writes one group's shard.

        Returns:
            One row: `group`, the number of images, `failed_ids` and their `reasons`, and the seconds of `CamActor`.
        """
        group = batch["group"][0].as_py()
        image_ids, errors = batch["image_ids"][0].as_py(), batch["errors"][0].as_py()
        # Before the shard, which says that the group is done.
        self._write_iterations(batch, [name for name, error in zip(image_ids, errors, strict=True) if not error])
        write_shard(self._store, group, self._rows(batch, image_ids, errors))
        failed = [(image_id, error) for image_id, error in zip(image_ids, errors, strict=True) if error]
        return pa.table(
            {
                "group": pa.array([group], pa.int64()),
                "num_images": pa.array([len(image_ids)], pa.int64()),
                "failed_ids": pa.array([[image_id for image_id, _ in failed]], pa.list_(pa.string())),
                "reasons": pa.array([[reason for _, reason in failed]], pa.list_(pa.string())),
                "waiting_seconds": batch["waiting_seconds"],
                "working_seconds": batch["working_seconds"],
            }
        )

    def _rows(self, batch: pa.Table, image_ids: list[str], errors: list[str]) -> Iterator[MaskRow]:
        """One row a member; a full-size mask lives only until the next row is asked for."""
        size = self._config.image_size
        readable = iter(zip(_images(batch, "pixels", size), _maps(batch, "cams", size), strict=True))
        heights, widths = batch["heights"][0].as_py(), batch["widths"][0].as_py()
        for image_id, height, width, error in zip(image_ids, heights, widths, errors, strict=True):
            if error:
                yield MaskRow(image_id, width, height, status="failed", error=error)
                continue
            image, cam = next(readable)
            # Where nothing was found, a CRF would make something of it.
            refined = dense_crf(image, cam) if self._config.crf and cam.any() else cam
            mask, boxes = self._cut(refined, height, width)
            kept = refined if self._config.crf else None
            yield MaskRow(image_id, width, height, cam=cam, refined=kept, mask=mask, boxes=boxes)

    def _cut(self, soft: NDArray[np.float32], height: int, width: int) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """Mask (height, width) and boxes (n, 4) of one image from its soft mask (S, S)."""
        if not soft.any():
            return np.zeros((height, width), dtype=np.bool_), np.zeros((0, 4), dtype=np.float32)
        threshold, min_area = self._config.mask_threshold, self._config.min_box_area
        regions = keep_large_components(soft >= threshold, min_area=min_area)
        boxes = extract_boxes(regions, min_area=min_area, margin=self._config.box_margin)
        # The soft mask is enlarged rather than the binary one: its edges stay smooth.
        enlarged = cv2.resize(soft, (width, height), interpolation=cv2.INTER_LINEAR)
        return enlarged >= threshold, boxes

    def _write_iterations(self, batch: pa.Table, image_ids: list[str]) -> None:
        size = self._config.image_size
        cams = np.frombuffer(batch["iterations"][0].as_buffer(), dtype=np.uint8)
        if cams.size:
            shown = image_ids[:NUM_KEPT_IMAGES]
            buffer = io.BytesIO()
            np.savez_compressed(buffer, image_ids=np.array(shown), cams=cams.reshape(-1, len(shown), size, size))
            self._store.write_bytes(ITERATIONS_NAME, buffer.getvalue())


def localize_group(plan: GroupPlan, config: dict[str, Any], store: Storage, group: int) -> pa.Table:
    """Run one group through all steps in this process, as a task: what is small need not wait for actors to start.

    Args:
        plan: Which images make up the group.
        config: `LocalizeConfig` as plain values.
        store: Folder of the mask store.
        group: Number of the group.

    Returns:
        The row of `CrfActor`, or one with a `fault`.
    """
    return CrfActor(config, store)(CamActor(config)(group_table(plan, group)))


def _columns(batch: pa.Table, *names: str) -> list[list[str]]:
    return [batch[name][0].as_py() for name in names]


def _images(batch: pa.Table, column: str, size: int) -> NDArray[np.uint8]:
    """Images (n, size, size, 3) of a column, without a copy."""
    return np.frombuffer(batch[column][0].as_buffer(), dtype=np.uint8).reshape(-1, size, size, 3)


def _maps(batch: pa.Table, column: str, size: int) -> NDArray[np.float32]:
    """Maps (n, size, size) of a column, without a copy."""
    return np.frombuffer(batch[column][0].as_buffer(), dtype=np.float32).reshape(-1, size, size)
