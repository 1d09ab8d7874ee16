"""Views on the training device: colours changed and normalised, a batch ahead of its use."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from objectaware.augment.color import augment_colors
from objectaware.data.images import IMAGENET_MEAN, IMAGENET_STD
from objectaware.training.views import ViewBatch

PreparedViews = tuple[list[Tensor], ViewBatch]


def prepared_views(
    batches: Iterator[ViewBatch], device: torch.device, mean: Sequence[float], std: Sequence[float]
) -> Generator[PreparedViews, None, None]:
    """Prepares each batch's views in a thread of its own while the batch before it trains.

    On a CPU one core then works on colours and another on convolutions; two threads on each operation in turn were
    slower than one, as most operations are too short to share.

    Args:
        batches: Batches in order.
        device: Where to train.
        mean: The network's, of values from 0 to 1.
        std: The network's.

    Yields:
        The views, (N, 3, H, W) float each, and the batch that they are of.
    """

    def prepare(batch: ViewBatch) -> PreparedViews:
        return [prepare_view(batch, position, device, mean, std) for position in range(len(batch.views))], batch

    with ThreadPoolExecutor(1, thread_name_prefix="colours") as pool:
        waiting: Future[PreparedViews] | None = None
        for batch in batches:
            upcoming = pool.submit(prepare, batch)
            if waiting is not None:
                yield waiting.result()
            waiting = upcoming
        if waiting is not None:
            yield waiting.result()


def prepare_view(
    batch: ViewBatch,
    position: int,
    device: torch.device,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
) -> Tensor:
    """Moves one of the views to the device, changes its colours and normalises it: uint8 to float (N, 3, H, W)."""
    images = batch.views[position].to(device, non_blocking=True).float().div_(255).contiguous()
    kernel = blur_kernel_size(images.shape[-1])
    images = augment_colors(images, batch.colors[position].to(device), blur_kernel_size=kernel)
    subtracted, divisor = (images.new_tensor(values).view(1, 3, 1, 1) for values in (mean, std))
    return images.sub_(subtracted).div_(divisor).contiguous(memory_format=torch.channels_last)


def blur_kernel_size(size: int) -> int:
    """Width of the blur: 23 pixels at 224 (paper, appendix B.1), in proportion at other sizes, odd."""
    return max(2 * round(11 * size / 224) + 1, 3)
