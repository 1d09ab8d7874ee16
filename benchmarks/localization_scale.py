"""Seconds that one more image costs `localize` as the number of images grows, start-up taken off by difference.

One Ray for all runs. From three sizes a < b < c come two marginal costs, (t_b − t_a) / (b − a) and
(t_c − t_b) / (c − b). Asked: the second is at most 1.1 times the first.
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

from harness import compare, exit_status, parser, seconds, write_results
from inputs import write_pictures, write_tiny_checkpoint
from objectaware.commands.common import Common, open_context
from objectaware.config import DataConfig, LocalizeConfig, LocalizeExecution
from objectaware.data.storage import Storage
from objectaware.distributed.localize import localize_needs
from objectaware.stages.localize import run_localize

_LIMIT = 1.1


def main(arguments: Sequence[str]) -> int:
    """Measures and writes the result."""
    given = _arguments(arguments)
    sizes = sorted(given.sizes)
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oa") as name:
        earlier, later = measure(Path(name), sizes, given.image_size, given.pairs)
    case = f"marginal cost of an image of {given.image_size}, {sizes[1]} to {sizes[2]} beside {sizes[0]} to {sizes[1]}"
    result = compare(case, later, earlier, unit="s", at_most=_LIMIT)
    write_results(given.out, [result])
    return exit_status([result])


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser(__doc__, "localization_scale")
    # From 200 on the gallery is full, whose pictures cost more than the localization of small ones.
    options.add_argument("--sizes", type=int, nargs=3, default=[250, 1_000, 10_000], help="images")
    options.add_argument("--image-size", type=int, default=64)
    given = options.parse_args(arguments)
    if given.quick:
        given.sizes, given.pairs = [8, 16, 32], 1
    return given


def measure(folder: Path, sizes: Sequence[int], image_size: int, num_pairs: int) -> tuple[list[float], list[float]]:
    """Both marginal costs, as often as asked, the sizes in turn."""
    for size in sizes:
        write_pictures(folder / str(size), size, image_size)
    write_tiny_checkpoint(folder / "checkpoint")
    earlier, later = list[float](), list[float]()
    with _localization(folder, image_size) as localize:
        localize(sizes[0])  # imports and Ray's own first time
        for pair in range(num_pairs):
            order = sizes if pair % 2 == 0 else sizes[::-1]
            taken = {size: seconds(partial(localize, size)) for size in order}
            small, middle, large = (taken[size] for size in sizes)
            earlier.append((middle - small) / (sizes[1] - sizes[0]))
            later.append((large - middle) / (sizes[2] - sizes[1]))
    return earlier, later


@contextmanager
def _localization(folder: Path, image_size: int) -> Iterator[Callable[[int], None]]:
    """Gives the stage as a function of the number of images, with one Ray and one MLflow store behind it."""
    execution = LocalizeExecution(num_cam_actors=1, num_crf_actors=1, num_compute_threads=1)
    numbers = itertools.count()
    with open_context(Common(storage=str(folder / "runs")), localize_needs(execution)) as context:

        def localize(size: int) -> None:
            config = LocalizeConfig(
                data=DataConfig(root=str(folder / str(size))),
                checkpoint=str(folder / "checkpoint"),
                image_size=image_size,
                num_iterations=1,
                expansion=1,
                crf=False,
                execution=execution,
            )
            out = Storage.from_uri(folder / f"masks-{next(numbers)}")
            values = run_localize(context, config, out=out).values
            assert values["num_ok"] == size, values
            shutil.rmtree(out.uri)

        yield localize


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
