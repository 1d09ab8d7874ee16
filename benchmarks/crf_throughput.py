"""The platform's CRF stage on two cores beside two bare pydensecrf processes on the same pictures.

Ours is all that the stage does: CRF, components, boxes, PNG, run lengths and the shard on disk, in two `CrfActor`
processes under Ray Data. The other is the CRF alone, whose result is thrown away. Asked: at least 0.9 of its speed.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier

import numpy as np
import pyarrow as pa
import pydensecrf.densecrf as dcrf
import ray.data
from numpy.typing import NDArray
from ray.data import ActorPoolStrategy, DataContext

from harness import compare, exit_status, in_turn, parser, write_results
from inputs import photo_source, photos
from objectaware.config import DataConfig, LocalizeConfig
from objectaware.data.storage import Storage
from objectaware.distributed.cluster import ray_cluster
from objectaware.distributed.localize_steps import CrfActor
from objectaware.localize.full_image import FullImage
from objectaware.localize.mask_store import read_rows
from objectaware.planning.measure import soft_masks

_LIMIT = 0.9
_NUM_PROCESSES = 2
_PATIENCE_SECONDS = 600.0


@dataclass(frozen=True)
class Work:
    """Pictures and their soft masks, cut into groups.

    Attributes:
        pictures: (N, S, S, 3).
        cams: (N, S, S).
        group_size: Pictures a group.
    """

    pictures: NDArray[np.uint8]
    cams: NDArray[np.float32]
    group_size: int

    @property
    def num_groups(self) -> int:
        """Groups."""
        return len(self.pictures) // self.group_size

    def group(self, number: int) -> slice:
        """Which pictures a group holds."""
        return slice(number * self.group_size, (number + 1) * self.group_size)


def main(arguments: Sequence[str]) -> int:
    """Measures and writes the result."""
    given = _arguments(arguments)
    number = given.groups * given.group_size
    pictures = np.stack(photos(number, given.image_size))
    work = Work(pictures, soft_masks(number, given.image_size), given.group_size)
    values = in_turn(lambda: stage_speed(work), lambda: bare_speed(work), given.pairs)
    case = f"CRF of {number} pictures of {photo_source()} at {given.image_size} on {_NUM_PROCESSES} processes"
    result = compare(case, *values, unit="images/s", at_least=_LIMIT)
    write_results(given.out, [result])
    return exit_status([result])


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser(__doc__, "crf_throughput")
    options.add_argument("--groups", type=int, default=20, help="at least 6")
    options.add_argument("--group-size", type=int, default=16)
    options.add_argument("--image-size", type=int, default=224)
    given = options.parse_args(arguments)
    if given.quick:
        given.groups, given.group_size, given.image_size, given.pairs = 6, 1, 48, 1
    return given


def stage_speed(work: Work) -> float:
    """Images a second of the stage under Ray Data, between the arrival of the second group and the last but one.

    Before, processes start; after, one of them has nothing left to do. What arrives between two arrivals was computed
    between them, but for what each process had begun at the one and has begun at the other, which is equal.
    """
    with tempfile.TemporaryDirectory() as folder, ray_cluster(min_cpus=_NUM_PROCESSES):
        DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        store = Storage.from_uri(folder)
        results = ray.data.from_arrow(list(tables(work))).map_batches(
            CrfActor,
            fn_constructor_kwargs={"config": stage_config(work), "store": store},
            compute=ActorPoolStrategy(size=_NUM_PROCESSES),
            num_cpus=1,
            batch_size=1,
            batch_format="pyarrow",
        )
        arrivals = [time.perf_counter() for _ in results.iter_rows()]
        check_against_bare(work, store)
    num_images = (work.num_groups - 3) * work.group_size
    return num_images / (arrivals[-2] - arrivals[1])


def stage_config(work: Work) -> LocalizeConfig:
    """What the stage is told of its pictures; no file is read."""
    data = DataConfig(root=".")
    return LocalizeConfig(data=data, localizer=FullImage(), image_size=work.pictures.shape[1])


def tables(work: Work) -> Iterator[pa.Table]:
    """Groups as they come from the CAM stage."""
    size = work.pictures.shape[1]
    for number in range(work.num_groups):
        members = work.group(number)
        ids = [f"{index:06d}" for index in range(members.start, members.stop)]
        sides = pa.array([[size] * len(ids)], pa.list_(pa.int32()))
        yield pa.table(
            {
                "group": pa.array([number], pa.int64()),
                "image_ids": pa.array([ids]),
                "heights": sides,
                "widths": sides,
                "errors": pa.array([[""] * len(ids)], pa.list_(pa.string())),
                "pixels": pa.array([work.pictures[members].tobytes()], pa.large_binary()),
                "cams": pa.array([work.cams[members].tobytes()], pa.large_binary()),
                "iterations": pa.array([b""], pa.large_binary()),
                "waiting_seconds": pa.array([0.0]),
                "working_seconds": pa.array([0.0]),
            }
        )


def check_against_bare(work: Work, store: Storage) -> None:
    """Both compute the same: the stored maps, of 8 bits, are the bare ones."""
    rows = {row.image_id: row for row in read_rows(store)}
    assert len(rows) == len(work.pictures), len(rows)
    for index in range(0, len(work.pictures), work.group_size):
        refined = rows[f"{index:06d}"].refined
        assert refined is not None
        error = float(np.abs(refined - bare_crf(work.pictures[index], work.cams[index])).max())
        assert error <= 1 / 254, error


def bare_crf(picture: NDArray[np.uint8], cam: NDArray[np.float32]) -> NDArray[np.float32]:
    """The CRF by pydensecrf's published example: two labels, five iterations, its default kernels."""
    height, width = cam.shape
    probabilities = np.stack([cam, 1 - cam]).reshape(2, -1)
    field = dcrf.DenseCRF2D(width, height, 2)
    field.setUnaryEnergy(np.ascontiguousarray(-np.log(probabilities + 1e-20), dtype=np.float32))
    field.addPairwiseGaussian(sxy=3, compat=3)
    field.addPairwiseBilateral(sxy=80, srgb=13, rgbim=picture, compat=10)
    return np.asarray(field.inference(5), dtype=np.float32)[0].reshape(height, width)


def bare_speed(work: Work) -> float:
    """Images a second of two processes that do nothing but the CRF, from when both are ready until both are done."""
    context = multiprocessing.get_context("spawn")  # Ray leaves threads behind, which a fork would cut off
    barrier = context.Barrier(_NUM_PROCESSES + 1)
    halves = [slice(start, None, _NUM_PROCESSES) for start in range(_NUM_PROCESSES)]
    processes = [
        context.Process(target=_bare_worker, args=(work.pictures[half], work.cams[half], barrier)) for half in halves
    ]
    for process in processes:
        process.start()
    barrier.wait(_PATIENCE_SECONDS)
    started = time.perf_counter()
    barrier.wait(_PATIENCE_SECONDS)  # both are done; to end takes a process that has imported as much another second
    taken = time.perf_counter() - started
    for process in processes:
        process.join()
        assert process.exitcode == 0, process.exitcode
    return len(work.pictures) / taken


def _bare_worker(pictures: NDArray[np.uint8], cams: NDArray[np.float32], barrier: Barrier) -> None:
    bare_crf(pictures[0], cams[0])
    barrier.wait(_PATIENCE_SECONDS)
    for picture, cam in zip(pictures, cams, strict=True):
        bare_crf(picture, cam)
    barrier.wait(_PATIENCE_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
