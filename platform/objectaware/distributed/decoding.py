"""Decode away from the workers: processes on any CPUs of the cluster cut the views of each worker's batches.

Each worker reads its own Ray Data stream, whose rows are the worker's batches in order. Ray Data can also split one
stream among workers (`OutputSplitter`). That split guarantees no order and starts at the first row after each restart,
whereas training needs exactly its rows, from its position on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
import ray.data
from numpy.typing import NDArray
from ray.data import ActorPoolStrategy
from ray.exceptions import RayError, RayTaskError

from objectaware.config import PretrainConfig
from objectaware.process import restore_collector
from objectaware.training.inputs import build_loader, open_inputs, worker_share
from objectaware.training.views import Columns, ViewBatch, ViewLoader, joined

_MAX_STEPS = 4096
_WITHOUT_END = -1  # to Ray Data


class Decoder:
    """Load the views of a worker's batches. Ray Data runs a pool of such processes.

    Args:
        config: The training's configuration.
        rank: The worker's number.
        world_size: Number of workers.
    """

    def __init__(self, config: PretrainConfig, rank: int, world_size: int) -> None:
        restore_collector()
        inputs = open_inputs(config)
        with tempfile.TemporaryDirectory(prefix="masks-") as folder:  # a mapped file outlives its name
            self._loader = build_loader(config, inputs.images, Path(folder))
        self._pool = ThreadPoolExecutor(config.execution.num_loader_threads, thread_name_prefix="views")
        self._share = lru_cache(maxsize=2)(lambda epoch: worker_share(inputs.batches(epoch), rank, world_size))

    def __call__(self, place: Columns) -> Columns:
        """Load the batch of one step.

        Args:
            place: The `epoch` and the `step` inside it, (1,) each.

        Returns:
            The batch's views.
        """
        epoch, step = int(place["epoch"][0]), int(place["step"][0])
        futures = self._loader.submit(self._pool, epoch, self._share(epoch)[step])
        return joined([future.result() for future in futures])


class DecodedViews:
    """Yield a worker's views as decoders cut them (`training.views.ViewSource`).

    Memory is bounded: decoders pause while Ray Data holds enough views that the worker has not taken yet.

    There is no limit to the wait for a free CPU for the first decoder. Further ones start as there is room. A decoder
    that hangs ends the worker, which makes no step meanwhile.

    Args:
        loader: Loader that puts batches together; without decoders it would also load the views.
        config: The training's configuration.
        rank: The worker's number.
        world_size: Number of workers.
        waiting: Opens the context in which the worker waits for the first views of a stream.
    """

    def __init__(
        self,
        loader: ViewLoader,
        config: PretrainConfig,
        rank: int,
        world_size: int,
        *,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._loader = loader
        self._waiting = waiting
        self._config = config
        self._arguments = (config, rank, world_size)
        self._stream: Generator[Columns, None, None] = (columns for columns in list[Columns]())

    def epoch(self, epoch: int, batches: Sequence[NDArray[np.int64]], *, first: int = 0) -> Iterator[ViewBatch]:
        """Yield an epoch's batches in order (`training.views.ViewSource.epoch`).

        Raises:
            InputError: As for the loader.
            RuntimeError: Decoders are lost for good.
        """
        try:
            for step in range(first, len(batches)):
                columns = next(self._stream, None)
                if columns is None:
                    places = stream_places(epoch, step, num_epochs=self._config.num_epochs, num_steps=len(batches))
                    self._stream = self._decoded(places, len(batches[step]))
                    with self._waiting():
                        columns = next(self._stream)
                assert np.array_equal(columns["index"], batches[step]), "the decoders follow another plan"
                yield self._loader.assemble(batches[step], [columns])
        except GeneratorExit:
            self._stream.close()  # ends the decoders
            raise

    def _decoded(self, places: list[tuple[int, int]], batch_size: int) -> Generator[Columns, None, None]:
        execution = self._config.execution
        assert execution.num_decoders is not None
        # One block per step, so that decoders take turns. Their output is cut into batches again.
        steps = [{"epoch": epoch, "step": step} for epoch, step in places]
        views = ray.data.from_items(steps, override_num_blocks=len(steps)).map_batches(
            Decoder,
            batch_size=1,
            fn_constructor_args=self._arguments,
            compute=ActorPoolStrategy(min_size=1, initial_size=execution.num_decoders, max_size=execution.num_decoders),
            num_cpus=execution.num_loader_threads,
        )
        views.context.execution_options.preserve_order = True
        views.context.raise_original_map_exception = True
        views.context.execution_no_progress_timeout_s = _WITHOUT_END
        views.context.enable_progress_bars = False
        views.context.print_on_execution_start = False
        try:
            yield from views.iter_batches(batch_size=batch_size, prefetch_batches=2)
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:  # such as decoders that are lost for good
            raise RuntimeError(f"the decoders failed: {error}") from error


def stream_places(epoch: int, step: int, *, num_epochs: int, num_steps: int) -> list[tuple[int, int]]:
    """Return the steps of one stream: the rest of an epoch, then whole epochs up to some thousand steps.

    Decoders take seconds to start, so one stream per epoch would delay short epochs. Ray Data keeps statistics of every
    block, so one stream must not serve weeks.

    Args:
        epoch: Current epoch, from 0.
        step: Step in the epoch, from 0.
        num_epochs: Epochs of the training.
        num_steps: Steps per epoch.

    Returns:
        Pairs (epoch, step) in order.
    """
    num_following = max((_MAX_STEPS - (num_steps - step)) // num_steps, 0)
    end = min(epoch + 1 + num_following, num_epochs)
    every = ((number, position) for number in range(epoch, end) for position in range(num_steps))
    return list(islice(every, step, None))
