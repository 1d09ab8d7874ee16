"""What localization takes an image: the processes of the stage, called in this one."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pyarrow as pa

from objectaware.config import DataConfig, LocalizeConfig, LocalizeExecution, MeasureConfig
from objectaware.data.folder import ImageFolder, Manifest
from objectaware.data.storage import Storage
from objectaware.distributed.localize_actors import CamActor, CrfActor
from objectaware.distributed.localize_groups import GroupPlan, group_table
from objectaware.localize.coco_export import coco_json
from objectaware.localize.mask_store import read_rows
from objectaware.planning.clock import core_seconds, wall_seconds
from objectaware.planning.hardware import num_cores
from objectaware.planning.pictures import soft_masks
from objectaware.planning.rates import Work
from objectaware.report.gallery import Look

GROUP_SIZE = 64
"""Images of the group that is measured: as many as a stage's."""

_NUM_ITERATIONS = 2


class MeasuredGroup:
    """One group of pictures on its way through localization.

    Args:
        config: What is measured.
        data: `GROUP_SIZE` pictures.
        checkpoint: Of the network that finds the masks which are stored.
        store: Where to.
    """

    def __init__(self, config: MeasureConfig, data: DataConfig, checkpoint: Path, store: Storage) -> None:
        images = data.open()
        assert isinstance(images, ImageFolder)
        self._images, self._data, self._checkpoint, self._store = images, data, checkpoint, store
        self._on_gpu, self._size = config.device == "cuda", config.image_size
        self._plan = GroupPlan.of(Manifest.of(images), group_size=GROUP_SIZE, seed=0, image_size=config.image_size)
        self._table = group_table(self._plan, 0)
        masked = self._cam_actor(checkpoint, expansion=1)(self._table)
        # An untrained network may find nothing, which a CRF would not be asked to refine.
        cams = pa.array([soft_masks(GROUP_SIZE, config.image_size).tobytes()], pa.large_binary())
        self._masked = masked.set_column(masked.column_names.index("cams"), "cams", cams)

    def rates(self) -> dict[str, float]:
        """What everything but the network takes an image: fields of `Rates`."""
        storing, refining = self._storing(crf=False), self._storing(crf=True)
        row = core_seconds(lambda: deque(coco_json(read_rows(self._store)), maxlen=0)) / GROUP_SIZE
        return {
            "reading": core_seconds(lambda: group_table(self._plan, 0)) / GROUP_SIZE,
            "storing": storing,
            "crf": max(refining - storing, 0.0),
            "row_seconds": row,
            "shown_seconds": max(core_seconds(self._show) / GROUP_SIZE - row, 0.0),
        }

    def iteration(self, checkpoint: Path, expansion: int) -> Work:
        """An image's share of an iteration of ContraCAM by a network."""
        actor = self._cam_actor(checkpoint, expansion)
        seconds = wall_seconds(lambda: actor(self._table), on_gpu=self._on_gpu) / GROUP_SIZE / _NUM_ITERATIONS
        return Work(gpu_seconds=seconds) if self._on_gpu else Work(core_seconds=seconds * num_cores())

    def _storing(self, *, crf: bool) -> float:
        """Core-seconds for a picture's mask, boxes and row of the store, with the CRF or without."""
        actor = CrfActor(self._config(self._checkpoint, crf=crf).model_dump(), self._store)
        return core_seconds(lambda: actor(self._masked)) / GROUP_SIZE

    def _show(self) -> None:
        look = Look(self._images, None)
        deque(coco_json(look.watch(read_rows(self._store))), maxlen=0)
        look.gallery("measured")

    def _cam_actor(self, checkpoint: Path, expansion: int) -> CamActor:
        return CamActor(self._config(checkpoint, expansion=expansion).model_dump())

    def _config(self, checkpoint: Path, *, expansion: int = 1, crf: bool = True) -> LocalizeConfig:
        fields = {"checkpoint": str(checkpoint), "expansion": expansion, "num_iterations": _NUM_ITERATIONS, "crf": crf}
        execution = LocalizeExecution(use_gpu=self._on_gpu, num_compute_threads=num_cores())
        sizes = {"image_size": self._size, "group_size": GROUP_SIZE}
        return LocalizeConfig.model_validate({**fields, **sizes, "data": self._data, "execution": execution})
