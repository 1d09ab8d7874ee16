"""The driver's memory as the number of images grows: `objectaware localize` on small pictures, a process each size.

Asked: private memory and resident memory at the larger size at most 1.1 times those at the smaller.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness import Result, compare, exit_status, parser, write_results
from objectaware.cli import run

_LIMIT = 1.1
_SECONDS_BETWEEN_LOOKS = 0.05
_RECIPE = """\
image_size: 64
localizer: {num_iterations: 1, expansion: 1}
crf: false
execution: {num_cam_actors: 1, num_crf_actors: 1, num_compute_threads: 1}
"""


def main(arguments: Sequence[str]) -> int:
    """Measures and writes the result, or is one of the measured processes."""
    given = _arguments(arguments)
    if given.localize is not None:
        print(json.dumps(measure_this_process(given.localize)))
        return 0
    results = measure(given.small, given.large, given.image_size, given.pairs)
    write_results(given.out, results)
    return exit_status(results)


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser(__doc__, "driver_memory", num_pairs=1)
    options.add_argument("--small", type=int, default=2_000, help="images")
    options.add_argument("--large", type=int, default=20_000, help="images")
    options.add_argument("--image-size", type=int, default=64)
    options.add_argument("--localize", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args(arguments)
    if given.quick:
        given.small, given.large, given.pairs = 8, 16, 1
    return given


def measure(small: int, large: int, image_size: int, num_pairs: int) -> list[Result]:
    """Private and resident memory at both sizes, in processes of their own."""
    from inputs import write_pictures, write_tiny_checkpoint  # not in the measured processes, which import no more
    # than the command does

    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oa") as name:
        folder = Path(name)
        write_pictures(folder / "large", large, image_size)
        write_pictures(folder / "small", small, image_size)
        write_tiny_checkpoint(folder / "checkpoint")
        (folder / "tiny.yaml").write_text(_RECIPE)
        peaks = [{size: _peaks(folder, size) for size in ("large", "small")} for _ in range(num_pairs)]
    return [
        compare(
            f"peak {kind} memory of the driver, {large} beside {small} images of {image_size}",
            [pair["large"][kind] for pair in peaks],
            [pair["small"][kind] for pair in peaks],
            unit="MiB",
            at_most=_LIMIT,
        )
        for kind in ("private", "resident")
    ]


def _peaks(folder: Path, pictures: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--localize", str(folder / pictures)]
    environment = {**os.environ, "OBJECTAWARE_STORAGE": str(folder / f"runs-{pictures}"), "RAY_TMPDIR": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    peaks: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return peaks


def measure_this_process(pictures: Path) -> dict[str, float]:
    """Localizes a folder of pictures as the command line does, and watches this process meanwhile.

    Returns:
        MiB at the peak: `private`, which no other process shares, seen twenty times a second; `resident`, as the
        kernel kept it, with the pages of Ray's object store that this process has touched.
    """
    parent = pictures.parent
    command = ["localize", str(pictures), "--checkpoint", str(parent / "checkpoint")]
    with _watched() as looks:
        status = run([*command, "--recipe", str(parent / "tiny.yaml"), "--preset", "mixup", "--fresh"])
    assert status == 0, status
    return {"private": max(looks) / 1024, "resident": _kibibytes(Path("/proc/self/status"), "VmHWM") / 1024}


@contextmanager
def _watched() -> Iterator[list[int]]:
    """Collects the private memory of this process in KiB."""
    looks, done = list[int](), threading.Event()

    def look() -> None:
        while not done.wait(_SECONDS_BETWEEN_LOOKS):
            looks.append(_kibibytes(Path("/proc/self/smaps_rollup"), "Private_Clean", "Private_Dirty"))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield looks
    finally:
        done.set()
        watcher.join()


def _kibibytes(path: Path, *names: str) -> int:
    """Sum of some lines of the form `Name:   12 kB`."""
    lines = (line.split() for line in path.read_text().splitlines())
    return sum(int(words[1]) for words in lines if words and words[0].rstrip(":") in names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
