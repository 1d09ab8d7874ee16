"""How near each stage comes to what its machine allows: the share of its floor that it reaches.

A floor is the time that a stage's floating-point operations take at the machine's best rate, or its bytes at the best
bandwidth, whichever is longer. Both rates are measured here, just before: the largest product of matrices and the copy
of an array far larger than the caches. Work whose data lie in a cache may move bytes faster than that. Nothing is
asked.

On a CPU everything runs in one thread in fp32. `--device cuda` measures networks alone, in fp32 and in bf16, compiled
or not, and writes a file of its own.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import torch
from threadpoolctl import threadpool_limits

from floor_networks import Setup, network_works, step_works
from floor_stages import stage_works
from harness import RESULTS, parser, write_rows
from roof import Roof, Work, clock_of, measure_roof


@dataclass(frozen=True)
class Floor:
    """A row of the CSV.

    Attributes:
        case: What was measured, with its sizes.
        device: `cpu`, or `cuda` and the GPU's name.
        gflop: Floating-point operations, in thousand millions.
        megabytes: What must be moved at least, in millions of bytes.
        floor_seconds: What that takes at the machine's best.
        measured_seconds: Median of what it took.
        share: The former of the latter.
        bound_by: Which of `operations` and `bytes` decides the floor.
        images_per_second: Where it goes through images.
    """

    case: str
    device: str
    gflop: float
    megabytes: float
    floor_seconds: float
    measured_seconds: float
    share: float
    bound_by: str
    images_per_second: float | None


def main(arguments: Sequence[str]) -> int:
    """Measures and writes the result."""
    given = _arguments(arguments)
    device = torch.device(given.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
        cv2.setNumThreads(1)
    with threadpool_limits(1), tempfile.TemporaryDirectory(dir="/tmp", prefix="oa") as folder:
        roof = measure_roof(device, is_quick=given.quick)
        floors = [*roof_rows(roof, device)]
        for work in _works(given, device, Path(folder)):
            floors.append(measured(work, roof, device, given.pairs))
            print(describe(floors[-1]), flush=True)
    write_rows(given.out, [asdict(floor) for floor in floors])
    print(f"written to {given.out}")
    return 0


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser(__doc__, "floors", num_pairs=3)
    options.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options.add_argument("--backbones", nargs="+", default=["resnet18", "resnet50"])
    options.add_argument("--batch-size", type=int, help="images a step; 4 on a CPU, 256 on a GPU")
    given = options.parse_args(arguments)
    if given.device == "cuda" and not torch.cuda.is_available():
        options.error("--device cuda: PyTorch finds no CUDA device here; leave it out to measure the CPU")
    if given.device == "cuda" and given.out == RESULTS / "floors.csv":
        given.out = RESULTS / "floors_cuda.csv"
    if given.batch_size is None:
        given.batch_size = 4 if given.device == "cpu" else 256
    if given.quick:
        given.backbones, given.batch_size, given.pairs = ["resnet10_narrow"], 2, 1
    return given


def _works(given: argparse.Namespace, device: torch.device, folder: Path) -> Iterator[Work]:
    """What is measured, one after the other, so that memory holds one."""
    size, queue_size = (32, 64) if given.quick else (224, 65536)
    if device.type == "cpu":
        number, linear_sizes = (2, (200, 16, 5)) if given.quick else (8, (5000, 512, 100))
        backbone = given.backbones[0]
        yield from stage_works(folder, backbone=backbone, size=size, number=number, linear_sizes=linear_sizes)
        # The sizes of the benchmark `training_step`.
        small = Setup(device, "fp32", False, 32, 96, queue_size)
        yield from () if given.quick else step_works(given.backbones[0], small)
    ways = (("fp32", False),) if device.type == "cpu" else (("fp32", False), ("bf16", False), ("bf16", True))
    for backbone, (precision, is_compiled) in itertools.product(given.backbones, ways):
        yield from network_works(backbone, Setup(device, precision, is_compiled, given.batch_size, size, queue_size))


def measured(work: Work, roof: Roof, device: torch.device, repeats: int) -> Floor:
    """Times a piece of work, after once for warming up, beside its floor."""
    clock = clock_of(device)
    work.run()
    taken = statistics.median(clock(work.run) for _ in range(repeats))
    floor, bound_by = roof.floor(work)
    images_per_second = None if work.num_images is None else work.num_images / taken
    return Floor(
        work.case,
        name_of(device),
        work.operations / 1e9,
        work.num_bytes / 1e6,
        floor,
        taken,
        floor / taken,
        bound_by,
        images_per_second,
    )


def roof_rows(roof: Roof, device: torch.device) -> Iterator[Floor]:
    """The roof itself: what a second holds."""
    for precision, rate in roof.operations_per_second.items():
        case = f"the roof: a second of products of matrices, {precision}"
        yield Floor(case, name_of(device), rate / 1e9, 0.0, 1.0, 1.0, 1.0, "operations", None)
    case = "the roof: a second of copying"
    yield Floor(case, name_of(device), 0.0, roof.bytes_per_second / 1e6, 1.0, 1.0, 1.0, "bytes", None)


def name_of(device: torch.device) -> str:
    """`cpu`, or `cuda` and the GPU's name."""
    return "cpu" if device.type == "cpu" else f"cuda, {torch.cuda.get_device_name(device)}"


def describe(floor: Floor) -> str:
    """One line for people."""
    speed = "" if floor.images_per_second is None else f", {floor.images_per_second:.4g} images/s"
    return (
        f"{floor.case} on {floor.device}: {floor.gflop:.4g} GFLOP, {floor.megabytes:.4g} MB, floor "
        f"{floor.floor_seconds:.4g} s by {floor.bound_by}, took {floor.measured_seconds:.4g} s, "
        f"share {floor.share:.1%}{speed}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
