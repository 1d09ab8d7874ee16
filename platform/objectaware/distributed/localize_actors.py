"""The processes of localization that keep something between groups: ContraCAM its network, CRF its store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from objectaware.config import LocalizeConfig
from objectaware.data.storage import Storage
from objectaware.data.tensors import normalise
from objectaware.distributed.localize_groups import faults_travel
from objectaware.localize.boxes import extract_boxes
from objectaware.localize.contracam import contracam
from objectaware.localize.crf import dense_crf
from objectaware.localize.expansion import expand_resolution
from objectaware.localize.mask_store import MaskRow, write_shard
from objectaware.methods.backbones import channels_last, feature_map
from objectaware.methods.checkpoint import load_encoder, local_checkpoint


class CamActor:
    """Adds the column `cams`: the soft masks of the images that could be read, (n, S, S) float32.

    The checkpoint is loaded with the first group, so that a bad one is reported as any other error.

    Args:
        config: `LocalizeConfig` as plain values.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = LocalizeConfig.model_validate(config)
        self._device = torch.device("cuda" if self._config.execution.use_gpu else "cpu")
        torch.set_num_threads(self._config.execution.num_compute_threads)

    @faults_travel
    def __call__(self, batch: pa.Table) -> pa.Table:
        """Runs ContraCAM on one group; the filler's results are dropped."""
        size = self._config.image_size
        pixels, filler = _images(batch, "pixels", size), _images(batch, "filler", size)
        cams = self._localize(np.concatenate([pixels, filler])) if len(pixels) else pixels
        content = pa.array([cams[: len(pixels)].tobytes()], pa.large_binary())
        return batch.drop_columns("filler").append_column("cams", content)

    def _localize(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        features, projector = self._network
        masks = contracam(
            normalise(images).to(self._device, memory_format=torch.channels_last),
            features,
            projector,
            num_iterations=self._config.num_iterations,
            remove_negative_signals=self._config.remove_negative_signals,
            temperature=self._config.temperature,
        )
        return masks[:, 0].cpu().numpy()

    @cached_property
    def _network(self) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
        with local_checkpoint(self._config.checkpoint) as folder:
            encoder = load_encoder(folder)
        backbone = channels_last(expand_resolution(encoder.backbone, self._config.expansion), self._device)
        return lambda images: feature_map(backbone, images), encoder.projector.to(self._device)


class CrfActor:
    """Refines the soft masks of a group, finds boxes and writes the group's shard.

    Args:
        config: `LocalizeConfig` as plain values.
        store: Folder of the mask store.
    """

    def __init__(self, config: dict[str, Any], store: Storage) -> None:
        self._config = LocalizeConfig.model_validate(config)
        self._store = store
        cv2.setNumThreads(1)

    @faults_travel
    def __call__(self, batch: pa.Table) -> pa.Table:
        """Writes one group's shard.

        Returns:
            One row: `group`, the number of images, `failed_ids` and their `reasons`.
        """
        group = batch["group"][0].as_py()
        image_ids, errors = batch["image_ids"][0].as_py(), batch["errors"][0].as_py()
        write_shard(self._store, group, self._rows(batch, image_ids, errors))
        failed = [(image_id, error) for image_id, error in zip(image_ids, errors, strict=True) if error]
        return pa.table(
            {
                "group": pa.array([group], pa.int64()),
                "num_images": pa.array([len(image_ids)], pa.int64()),
                "failed_ids": pa.array([[image_id for image_id, _ in failed]], pa.list_(pa.string())),
                "reasons": pa.array([[reason for _, reason in failed]], pa.list_(pa.string())),
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
            mask, boxes = self._refine(image, cam, height, width)
            yield MaskRow(image_id, width, height, cam=cam, mask=mask, boxes=boxes)

    def _refine(
        self, image: NDArray[np.uint8], cam: NDArray[np.float32], height: int, width: int
    ) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """Mask (height, width) and boxes (n, 4) of one image from its soft mask (S, S)."""
        if not cam.any():  # nothing found; a CRF would make something of it
            return np.zeros((height, width), dtype=np.bool_), np.zeros((0, 4), dtype=np.float32)
        soft = dense_crf(image, cam) if self._config.crf else cam
        threshold = self._config.mask_threshold
        boxes = extract_boxes(soft >= threshold, min_area=self._config.min_box_area, margin=self._config.box_margin)
        # The soft mask is enlarged rather than the binary one: its edges stay smooth.
        enlarged = cv2.resize(soft, (width, height), interpolation=cv2.INTER_LINEAR)
        return enlarged >= threshold, boxes


def _images(batch: pa.Table, column: str, size: int) -> NDArray[np.uint8]:
    """Images (n, size, size, 3) of a column, without a copy."""
    return np.frombuffer(batch[column][0].as_buffer(), dtype=np.uint8).reshape(-1, size, size, 3)


def _maps(batch: pa.Table, column: str, size: int) -> NDArray[np.float32]:
    """Maps (n, size, size) of a column, without a copy."""
    return np.frombuffer(batch[column][0].as_buffer(), dtype=np.float32).reshape(-1, size, size)
