"""Two augmented views of photos beside torchvision's transforms on PIL images and lightly's for MoCo v2.

Photos are decoded before, so that nothing but cropping, resizing, colours, blur and normalisation is timed, from
pixels to a float batch on one thread. Asked: at most 1 / 1.5 of torchvision's time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
import torch
from lightly.transforms.moco_transform import MoCoV2Transform
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from harness import Result, compare, computing_in_turn, exit_status, parser, write_results
from inputs import ArrayImages, photo_source, photos_as_they_are
from objectaware.augment.color import ColorDistribution
from objectaware.config import ViewConfig
from objectaware.data.images import IMAGENET_MEAN, IMAGENET_STD
from objectaware.training.policies.base import PlainViews
from objectaware.training.views import ViewLoader, blur_kernel_size, prepare_view

_LIMIT = 1 / 1.5
_MIN_SCALE = 0.08
_CPU = torch.device("cpu")
# Means over a few hundred random views scatter by a few hundredths of a standard deviation.
_TOLERANCE = 0.15

Views = tuple[Tensor, Tensor]


def main(arguments: Sequence[str]) -> int:
    """Measures and writes the result."""
    options = parser(__doc__, "augmentation", num_pairs=7)
    options.add_argument("--photos", type=int, default=128)
    options.add_argument("--image-size", type=int, default=224)
    given = options.parse_args(arguments)
    if given.quick:
        given.photos, given.image_size, given.pairs = 8, 64, 1
    torch.set_num_threads(1)
    results = measure(given.photos, given.image_size, given.pairs, is_checked=not given.quick)
    write_results(given.out, results)
    return exit_status(results)


def measure(num_photos: int, size: int, num_pairs: int, *, is_checked: bool) -> list[Result]:
    """All photos through both ways in turn, beside each of the alternatives."""
    pictures = photos_as_they_are(num_photos)
    pil_pictures = [Image.fromarray(picture) for picture in pictures]
    ours = our_views(pictures, size)
    case = f"two views at {size} of {num_photos} photos of {photo_source()}, beside"
    results = []
    for name, limit, transform in (
        ("torchvision v2 on PIL", _LIMIT, torchvision_transform(size)),
        ("lightly's MoCoV2Transform", None, lightly_transform(size)),
    ):
        theirs = transformed(pil_pictures, transform)
        if is_checked:
            _check_distributions(ours(), theirs())
        values = computing_in_turn(ours, theirs, num_pairs)
        results.append(compare(f"{case} {name}", *values, unit="s of one core", at_most=limit))
    return results


def our_views(pictures: Sequence[NDArray[np.uint8]], size: int) -> Callable[[], Views]:
    """Another epoch's views with each call."""
    loader = ViewLoader(
        ArrayImages(pictures),
        PlainViews(),
        views=[ViewConfig(size, _MIN_SCALE)] * 2,
        colors=ColorDistribution(),
        seed=0,
        num_threads=1,
    )
    epochs = iter(range(1_000_000))
    indices = np.arange(len(pictures))

    def views() -> Views:
        (batch,) = loader.epoch(next(epochs), [indices])
        return prepare_view(batch, 0, _CPU), prepare_view(batch, 1, _CPU)

    return views


def transformed(pictures: Sequence[Image.Image], transform: Callable[[Image.Image], Views]) -> Callable[[], Views]:
    """Each photo through a transform that gives two views, collated as a data loader does."""

    def views() -> Views:
        pairs = [transform(picture) for picture in pictures]
        return torch.stack([first for first, _ in pairs]), torch.stack([second for _, second in pairs])

    return views


def torchvision_transform(size: int) -> Callable[[Image.Image], Views]:
    """MoCo v2's recipe of torchvision's own parts, on PIL images."""
    low, high = ColorDistribution().blur_sigma
    blur = v2.GaussianBlur(blur_kernel_size(size), (low * size / 224, high * size / 224))
    view = v2.Compose(
        [
            v2.RandomResizedCrop(size, scale=(_MIN_SCALE, 1.0)),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
            v2.RandomGrayscale(0.2),
            v2.RandomApply([blur], p=0.5),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(IMAGENET_MEAN, IMAGENET_STD),
        ]
    )
    return lambda picture: (view(picture), view(picture))


def lightly_transform(size: int) -> Callable[[Image.Image], Views]:
    """Lightly's own, whose blur is Pillow's approximation of a Gaussian."""
    transform = MoCoV2Transform(input_size=size, min_scale=_MIN_SCALE)

    def views(picture: Image.Image) -> Views:
        first, second = transform(picture)
        assert isinstance(first, Tensor)
        assert isinstance(second, Tensor)
        return first, second

    return views


def _check_distributions(ours: Views, theirs: Views) -> None:
    """Draws differ, so that means, spreads and sharpness of all views are compared; operations have tests."""
    for one, other in zip(_statistics(ours), _statistics(theirs), strict=True):
        assert (one - other).abs().max() < _TOLERANCE, (one, other)


def _statistics(views: Views) -> tuple[Tensor, Tensor, Tensor]:
    batch = torch.cat(views)
    rows = batch.diff(dim=2).abs().mean()
    return batch.mean(dim=(0, 2, 3)), batch.std(dim=(0, 2, 3)), rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
