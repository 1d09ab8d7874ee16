"""Decoding away from the workers: processes on any CPUs of the cluster cut the views of each worker's batches.

Each worker reads a Ray Data stream of its own, whose rows are the worker's columns of the plan, in order. Ray Data's
own split of one stream among workers promises no order (`OutputSplitter`), and begins with the first row after each
restart; training needs exactly its rows, from where it stands.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import ray.data
from numpy.typing import NDArray
from ray.data import ActorPoolStrategy
from ray.exceptions import RayError, RayTaskError

from objectaware import collector
from objectaware.config import PretrainConfig
from objectaware.training.inputs import build_loader, open_inputs, worker_share
from objectaware.training.views import ViewBatch, ViewLoader, ViewPart, ViewSource

Columns = dict[str, NDArray[Any]]
"""Views of a batch on their way, a row a sample."""

_MAX_STEPS = 4096
_SECONDS_TO_START = 300


class Decoder:
    """A process that loads the views of a worker's batches. Ray Data runs a pool of them.

    Args:
        config: Of the training, `PretrainConfig.model_dump()`.
        rank: The worker's number.
        world_size: Number of workers.
    """

    def __init__(self, config: dict[str, Any], rank: int, world_size: int) -> None:
        collector.restore()
        validated = PretrainConfig.model_validate(config)
        inputs = open_inputs(validated)
        with tempfile.TemporaryDirectory(prefix="masks-") as folder:  # a mapped file outlives its name
            self._loader = build_loader(validated, inputs.images, Path(folder))
        self._pool = ThreadPoolExecutor(validated.execution.num_loader_threads, thread_name_prefix="views")
        self._share = lru_cache(maxsize=2)(lambda epoch: worker_share(inputs.batches(epoch), rank, world_size))

    def __call__(self, place: Columns) -> Columns:
        """Loads the batch of one step.

        Args:
            place: `epoch` and `step` in it, (1,) each.

        Returns:
            The fields of `ViewPart`, samples first, the pixels of view 0 as `pixels_0` and so on, and `index`, the
            samples.
        """
        epoch, step = int(place["epoch"][0]), int(place["step"][0])
        indices = self._share(epoch)[step]
        parts = [future.result() for future in self._loader.submit(self._pool, epoch, indices)]
        columns: Columns = {
            "index": indices,
            "color_draws": np.concatenate([part.color_draws.swapaxes(0, 1) for part in parts]),
            "mix_draws": np.concatenate([part.mix_draws for part in parts]),
            "unreadable": np.concatenate([part.unreadable for part in parts]),
        }
        for view in range(len(parts[0].pixels)):
            columns[f"pixels_{view}"] = np.concatenate([part.pixels[view] for part in parts])
        masks = [part.masks for part in parts if part.masks is not None]
        return {**columns, "masks": np.concatenate(masks)} if masks else columns


class DecodedViews:
    """A worker's views as decoders cut them: `training.views.ViewSource`.

    Memory is bounded: decoders rest while Ray Data holds enough that the worker has not taken yet.

    Args:
        loader: What would load the views here; it puts batches together.
        config: Of the training.
        rank: The worker's number.
        world_size: Number of workers.
    """

    def __init__(self, loader: ViewLoader, config: PretrainConfig, rank: int, world_size: int) -> None:
        self._loader = loader
        self._config = config
        self._arguments = (config.model_dump(), rank, world_size)
        none: list[Columns] = []
        self._stream: Generator[Columns, None, None] = (columns for columns in none)

    def epoch(self, epoch: int, batches: Sequence[NDArray[np.int64]], *, first: int = 0) -> Iterator[ViewBatch]:
        """Yields an epoch's batches in order (`training.views.ViewSource.epoch`).

        Raises:
            InputError: As the loader itself.
            RuntimeError: Decoders do not start, or are lost for good.
        """
        try:
            for step in range(first, len(batches)):
                columns = next(self._stream, None)
                if columns is None:
                    places = stream_places(epoch, step, num_epochs=self._config.num_epochs, num_steps=len(batches))
                    self._stream = self._decoded(places, len(batches[step]))
                    columns = next(self._stream)
                assert np.array_equal(columns["index"], batches[step]), "the decoders follow another plan"
                yield self._loader.assemble(batches[step], [_part(columns)])
        except GeneratorExit:
            self._stream.close()  # ends the decoders
            raise

    def _decoded(self, places: list[tuple[int, int]], batch_size: int) -> Generator[Columns, None, None]:
        execution = self._config.execution
        assert execution.num_decoders is not None
        # A block a place, so that decoders take turns; what they give is cut at the batches again.
        steps = [{"epoch": epoch, "step": step} for epoch, step in places]
        views = ray.data.from_items(steps, override_num_blocks=len(steps)).map_batches(
            Decoder,
            batch_size=1,
            fn_constructor_args=self._arguments,
            compute=ActorPoolStrategy(size=execution.num_decoders),
            num_cpus=execution.num_loader_threads,
        )
        views.context.execution_options.preserve_order = True
        views.context.raise_original_map_exception = True
        views.context.wait_for_min_actors_s = _SECONDS_TO_START
        views.context.enable_progress_bars = False
        views.context.print_on_execution_start = False
        try:
            yield from views.iter_batches(batch_size=batch_size, prefetch_batches=2)
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:  # such as decoders that do not start, or are lost for good
            raise RuntimeError(f"the decoders failed: {error}") from error


def view_source(loader: ViewLoader, config: PretrainConfig, rank: int, world_size: int) -> ViewSource:
    """Where a worker's views come from, as `execution.decode_on` says; arguments as `DecodedViews`."""
    on_workers = config.execution.decode_on == "workers"
    return loader if on_workers else DecodedViews(loader, config, rank, world_size)


def stream_places(epoch: int, step: int, *, num_epochs: int, num_steps: int) -> list[tuple[int, int]]:
    """The steps that one stream serves: the rest of an epoch, and whole ones after it up to some thousand steps.

    Decoders take seconds to start, so that a stream an epoch would hold short epochs up; and Ray Data keeps
    statistics of every block, so that a stream must not serve weeks.

    Args:
        epoch: Where training stands, from 0.
        step: Step in the epoch, from 0.
        num_epochs: Epochs of the training.
        num_steps: Steps an epoch.

    Returns:
        (epoch, step) each, in order.
    """
    num_following = max((_MAX_STEPS - (num_steps - step)) // num_steps, 0)
    end = min(epoch + 1 + num_following, num_epochs)
    every = ((number, position) for number in range(epoch, end) for position in range(num_steps))
    return list(islice(every, step, None))


def _part(columns: Columns) -> ViewPart:
    return ViewPart(
        pixels=tuple(columns[f"pixels_{view}"] for view in range(columns["color_draws"].shape[1])),
        color_draws=columns["color_draws"].swapaxes(0, 1),
        mix_draws=columns["mix_draws"],
        masks=columns.get("masks"),
        unreadable=columns["unreadable"],
    )
