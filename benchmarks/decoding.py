"""Decoding photos to the network's input, beside PIL, torchvision.io and Ray Data's read_images.

From files to float batches (N, 3, 224, 224), squashed with antialiasing and normalised. The first two alternatives are
the work of one thread; Ray Data's is by the wall clock, in a Ray that runs already and may use two CPUs, beside our
reader in two threads. Nothing is asked: decoding is libjpeg's in all of them, and what is shown is what safe decoding
(orientation, odd colour modes, damaged files as data) costs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import ray
import ray.data
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torchvision.io import ImageReadMode, decode_image, read_file
from torchvision.transforms.v2 import functional

from harness import Result, compare, computing_in_turn, exit_status, in_turn, parser, seconds, write_results
from inputs import photo_folder, photo_source
from objectaware.data.images import IMAGENET_MEAN, IMAGENET_STD, read_image, resize_image
from objectaware.distributed.cluster import ray_cluster

# Of normalised values; torchvision's JPEG decoder and its resize round differently from Pillow's.
_TOLERANCE = 0.05


def main(arguments: Sequence[str]) -> int:
    """Measures and writes the result."""
    options = parser(__doc__, "decoding")
    options.add_argument("--photos", type=int, default=200)
    options.add_argument("--many", type=int, default=2000, help="photos that Ray Data reads")
    options.add_argument("--image-size", type=int, default=224)
    given = options.parse_args(arguments)
    if given.quick:
        given.photos, given.many, given.image_size, given.pairs = 4, 16, 64, 1
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oa") as name:
        folder = Path(name)
        few = sorted(photo_folder(folder / "few", given.photos).iterdir())
        results = beside_one_thread(few, given.image_size, given.pairs)
        results.append(beside_ray_data(photo_folder(folder / "many", given.many), given.image_size, given.pairs))
    write_results(given.out, results)
    return exit_status(results)


def beside_one_thread(paths: Sequence[Path], size: int, num_pairs: int) -> list[Result]:
    """All photos into one batch, by one thread."""

    def batch(read: Callable[[Path, int], Tensor]) -> Tensor:
        return normalised(torch.stack([read(path, size) for path in paths]))

    results = []
    for name, read in (("PIL", read_with_pil), ("torchvision.io", read_with_torchvision)):
        difference = (batch(read_ours) - batch(read)).abs().mean()
        assert difference < _TOLERANCE, (name, difference)
        values = computing_in_turn(partial(batch, read_ours), partial(batch, read), num_pairs)
        case = f"decoding {len(paths)} photos of {photo_source()} to {size}, beside {name}"
        results.append(compare(case, *values, unit="s of one core"))
    return results


def beside_ray_data(folder: Path, size: int, num_pairs: int) -> Result:
    """All photos into batches, by two threads of ours and by Ray Data's reader with two CPUs."""
    paths = sorted(folder.iterdir())

    def ours() -> int:
        with ThreadPoolExecutor(2) as pool:
            return len([normalised(image[None]) for image in pool.map(lambda path: read_ours(path, size), paths)])

    def theirs() -> int:
        batches = ray.data.read_images(str(folder), size=(size, size), mode="RGB").iter_batches(batch_size=64)
        return sum(len(normalised(to_channels_first(batch["image"]))) for batch in batches)

    with ray_cluster():
        ray.data.DataContext.get_current().enable_progress_bars = False
        assert ours() == theirs() == len(paths)  # the warm-up, too
        values = in_turn(lambda: seconds(ours), lambda: seconds(theirs), num_pairs)
    case = f"decoding {len(paths)} photos of {photo_source()} to {size} on two cores, beside Ray Data's read_images"
    return compare(case, *values, unit="s")


def read_ours(path: Path, size: int) -> Tensor:
    """A photo as uint8 (3, size, size), the way that training and localization take."""
    return to_channels_first(resize_image(read_image(path), (size, size))[None])[0]


def read_with_pil(path: Path, size: int) -> Tensor:
    """The same with Pillow alone."""
    with Image.open(path) as image:
        small = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    return to_channels_first(np.array(small)[None])[0]


def read_with_torchvision(path: Path, size: int) -> Tensor:
    """The same with torchvision.io and its antialiased resize."""
    image = decode_image(read_file(str(path)), mode=ImageReadMode.RGB)
    return functional.resize(image, [size, size], antialias=True)


def to_channels_first(pixels: NDArray[np.uint8]) -> Tensor:
    """(N, H, W, 3) to (N, 3, H, W)."""
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)


def normalised(images: Tensor) -> Tensor:
    """Bytes to what the network sees."""
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    return images.float().div_(255).sub_(mean).div_(std)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
