"""Seconds that one more image costs `localize` as the number of images grows, start-up taken off by difference.

One Ray for all runs. From three sizes a < b < c come two marginal costs, (t_b − t_a) / (b − a) and
(t_c − t_b) / (c − b). Asked: the second is at most 1.1 times the first.

Of workers growing from 1 to 2 the second cost is reported, nothing asked: on a machine of two cores the driver, the
readers and the CRF's process share them with both.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from harness import Result, compare, exit_status, parser, seconds, write_results
from inputs import write_pictures, write_tiny_checkpoint
from objectaware.commands.common import Common, open_context
from objectaware.config import DataConfig, LocalizeConfig, LocalizeExecution
from objectaware.data.storage import Storage
from objectaware.distributed.localize import localize_needs
from objectaware.localize.contracam import ContraCAM
from objectaware.stages.localize import localize as run_localize

_LIMIT = 1.1


def main(arguments: Sequence[str]) -> int:
    """Measures and writes the result."""
    given = _arguments(arguments)
    sizes = sorted(given.sizes)
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oa") as name:
        results = measure(Path(name), sizes, given.image_size, given.pairs, given.worker_pairs)
    write_results(given.out, results)
    return exit_status(results)


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser(__doc__, "localization_scale")
    # Far enough apart that start-up, which scatters by half a second, does not decide. From 200 on the gallery is full,
    # whose pictures cost more than the localization of small ones.
    options.add_argument("--sizes", type=int, nargs=3, default=[1_000, 4_000, 10_000], help="images")
    options.add_argument("--image-size", type=int, default=64)
    options.add_argument("--worker-pairs", type=int, default=2, help="of the pairs, the first with 2 workers, too")
    given = options.parse_args(arguments)
    if given.quick:
        given.sizes, given.pairs, given.worker_pairs = [8, 16, 32], 1, 1
    return given


def measure(folder: Path, sizes: Sequence[int], image_size: int, num_pairs: int, num_worker_pairs: int) -> list[Result]:
    """Marginal costs as the images become more, and as the workers do."""
    for size in sizes:
        write_pictures(folder / str(size), size, image_size)
    write_tiny_checkpoint(folder / "checkpoint")
    small, middle, large = sizes
    runs, runs_of_two = [(1, small), (1, middle), (1, large)], [(2, middle), (2, large)]
    earlier, later, shared = list[float](), list[float](), list[float]()
    with _localization(folder, image_size) as localize:
        localize(2, small)  # imports and Ray's own first time
        for pair in range(num_pairs):
            all_runs = runs + (runs_of_two if pair < num_worker_pairs else [])
            order = all_runs if pair % 2 == 0 else all_runs[::-1]
            taken = {run: seconds(partial(localize, *run)) for run in order}
            earlier.append((taken[1, middle] - taken[1, small]) / (middle - small))
            later.append((taken[1, large] - taken[1, middle]) / (large - middle))
            if pair < num_worker_pairs:
                shared.append((taken[2, large] - taken[2, middle]) / (large - middle))
    case = f"marginal cost of an image of {image_size}, {middle} to {large}"
    return [
        compare(f"{case} beside {small} to {middle}", later, earlier, unit="s", at_most=_LIMIT),
        compare(f"{case}: 2 workers beside 1", shared, later[: len(shared)], unit="s"),
    ]


@contextmanager
def _localization(folder: Path, image_size: int) -> Iterator[Callable[[int, int], None]]:
    """Gives the stage as a function of the numbers of workers and images, with one Ray and one MLflow store."""
    numbers = itertools.count()
    with open_context(Common(storage=str(folder / "runs")), localize_needs(_execution(2))) as context:
        context.services.start_ray()

        def localize(num_workers: int, size: int) -> None:
            config = LocalizeConfig(
                data=DataConfig(root=str(folder / str(size))),
                checkpoint=str(folder / "checkpoint"),
                image_size=image_size,
                localizer=ContraCAM(num_iterations=1, expansion=1),
                crf=False,
                execution=_execution(num_workers),
            )
            out = Storage.from_uri(folder / f"masks-{next(numbers)}")
            values = run_localize(context, config, out=out).values
            assert values["num_ok"] == size, values
            shutil.rmtree(out.uri)

        yield localize


def _execution(num_workers: int) -> LocalizeExecution:
    return LocalizeExecution(num_cam_actors=num_workers, num_crf_actors=1, num_compute_threads=1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
