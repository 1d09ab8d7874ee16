"""The views of each sample: drawn by counter, cut on the CPU in threads, then coloured on the training device."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from objectaware.augment.color import NUM_COLOR_DRAWS, ColorDistribution, ColorParameters, augment_colors, sample_colors
from objectaware.augment.crop import NUM_CROP_DRAWS, resize_patch, sample_crops, sample_flips
from objectaware.augment.randomness import counter_uniforms
from objectaware.config import ViewConfig
from objectaware.data.images import IMAGENET_MEAN, IMAGENET_STD, Images
from objectaware.training.loop import prefetched
from objectaware.training.policies.base import NUM_MIX_DRAWS, NUM_POLICY_DRAWS, Policy

_STREAM_REGION, _STREAM_VIEWS, _STREAM_MIX = 0, 1, 2
_VIEW_DRAWS = NUM_CROP_DRAWS + NUM_COLOR_DRAWS + NUM_POLICY_DRAWS


@dataclass(frozen=True)
class ViewBatch:
    """Views of N samples before their colours are changed.

    Attributes:
        views: Pixels of each view, uint8 (N, 3, H, W) in channels-last order.
        colors: Colour parameters of each view.
        mix_draws: Uniform numbers of each sample for the policy's `mix_batch`, (N, NUM_MIX_DRAWS).
        masks: Masks under view 1 in 8 bits, (N, 1, H, W) uint8, where the policy needs them.
        unreadable: Whether another image stands in for a sample's, which cannot be read, (N,).
        indices: The samples, (N,).
    """

    views: tuple[torch.Tensor, ...]
    colors: tuple[ColorParameters, ...]
    mix_draws: torch.Tensor
    masks: torch.Tensor | None
    unreadable: NDArray[np.bool_]
    indices: NDArray[np.int64]


Columns = dict[str, NDArray[Any]]
"""Views of n samples before they are put together to a `ViewBatch`, one row per sample.

`index` holds the samples (n,), `pixels_0` and so on the pixels of each view (n, H, W, 3) uint8, `color_draws` of shape
(n, number of views, NUM_COLOR_DRAWS), `mix_draws` (n, NUM_MIX_DRAWS), and `unreadable` (n,) whether another image
stands in for a sample's. `masks` holds the masks under view 1 (n, H, W) uint8; it is missing if the policy does not
need them.
"""


def joined(parts: Sequence[Columns]) -> Columns:
    """Concatenate parts of a batch, which are in order."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class ViewSource(Protocol):
    """Source of a training's batches."""

    def epoch(self, epoch: int, batches: Sequence[NDArray[np.int64]], *, first: int = 0) -> Iterator[ViewBatch]:
        """Yield an epoch's batches in order, from batch `first` on. Nothing before it is read.

        Args:
            epoch: Epoch, from 0.
            batches: Sample indices of each batch of the epoch, (n,) each.
            first: Number of the first batch to yield.

        Yields:
            Each batch's views.
        """


@dataclass
class ViewLoader:
    """Load batches of views, some batches ahead of their use.

    Every number drawn is a function of seed, epoch and sample (`counter_uniforms`).

    Attributes:
        images: The data set.
        policy: What is done to the positives.
        views: How each view of a sample is cut from its image, or from the object's region.
        colors: How strongly colours are changed; its blur is meant for views of 224 pixels and scaled to each view's
            size.
        seed: Seed of the run.
        num_threads: Threads that decode and crop; Pillow works outside the interpreter's lock.
        is_unreadable: Returns whether another image stands in for an image that was read.
    """

    images: Images
    policy: Policy
    views: Sequence[ViewConfig]
    colors: ColorDistribution
    seed: int
    num_threads: int
    is_unreadable: Callable[[int], bool] = lambda index: False

    def epoch(self, epoch: int, batches: Sequence[NDArray[np.int64]], *, first: int = 0) -> Iterator[ViewBatch]:
        """Yield an epoch's batches in order (`ViewSource.epoch`)."""
        with ThreadPoolExecutor(self.num_threads, thread_name_prefix="views") as pool:
            loaded = prefetched(batches[first:], lambda indices: self.submit(pool, epoch, indices), ahead=2)
            yield from starmap(self.assemble, loaded)

    def submit(self, pool: ThreadPoolExecutor, epoch: int, indices: NDArray[np.int64]) -> list[Future[Columns]]:
        """Load some samples in the pool's threads, in parts of equal size and in order."""
        parts = np.array_split(indices, min(len(indices), 2 * self.num_threads))
        return [pool.submit(self.load, epoch, part) for part in parts]

    def assemble(self, indices: NDArray[np.int64], parts: Sequence[Columns]) -> ViewBatch:
        """Put the views of a batch together from its parts, which are in order."""
        columns = joined(parts)
        views, parameters = [], []
        low, high = self.colors.blur_sigma
        for view, (size, *_) in enumerate(self.views):
            # The recipe's pixels are those of views of 224; smaller views would lose all texture to as strong a blur.
            distribution = replace(self.colors, blur_sigma=(low * size / 224, high * size / 224))
            views.append(torch.from_numpy(columns[f"pixels_{view}"]).permute(0, 3, 1, 2))
            parameters.append(sample_colors(columns["color_draws"][:, view], distribution))
        return ViewBatch(
            views=tuple(views),
            colors=tuple(parameters),
            mix_draws=torch.from_numpy(columns["mix_draws"]),
            masks=torch.from_numpy(columns["masks"]).unsqueeze(1) if "masks" in columns else None,
            unreadable=columns["unreadable"],
            indices=indices,
        )

    def load(self, epoch: int, indices: NDArray[np.int64]) -> Columns:
        """Load the views of some samples in this thread.

        Args:
            epoch: Epoch, from 0.
            indices: Samples, shape (n,).

        Returns:
            Their pixels, draws and masks.
        """
        columns: Columns = {"index": indices}
        images = [self.images.read(int(index)) for index in indices]
        columns["unreadable"] = np.array([self.is_unreadable(int(index)) for index in indices], dtype=np.bool_)
        region_draws = counter_uniforms(self.seed, epoch, indices, NUM_POLICY_DRAWS, stream=_STREAM_REGION)
        placed = zip(indices.tolist(), images, region_draws, strict=True)
        regions = [self.policy.region(index, image.shape[0], image.shape[1], draw) for index, image, draw in placed]
        tops, lefts, heights, widths = np.array(regions, dtype=np.int64).T
        if self.policy.needs_masks:
            # Without a mask it stays 0.
            columns["masks"] = np.zeros((len(indices), self.views[0].size, self.views[0].size), dtype=np.uint8)
        draws = counter_uniforms(self.seed, epoch, indices, len(self.views) * _VIEW_DRAWS, stream=_STREAM_VIEWS)
        draws = draws.reshape(len(indices), len(self.views), _VIEW_DRAWS)
        columns["color_draws"] = draws[:, :, NUM_CROP_DRAWS : NUM_CROP_DRAWS + NUM_COLOR_DRAWS]
        columns["mix_draws"] = counter_uniforms(self.seed, epoch, indices, NUM_MIX_DRAWS, stream=_STREAM_MIX)
        for view, (size, min_scale, max_scale) in enumerate(self.views):
            pixels = columns[f"pixels_{view}"] = np.empty((len(indices), size, size, 3), dtype=np.uint8)
            crop_draws, policy_draws = draws[:, view, :NUM_CROP_DRAWS], draws[:, view, -NUM_POLICY_DRAWS:]
            crops = sample_crops(crop_draws, heights, widths, min_scale=min_scale, max_scale=max_scale)
            crops[:, 0] += tops
            crops[:, 1] += lefts
            flips = sample_flips(crop_draws)
            for position, (index, image) in enumerate(zip(indices.tolist(), images, strict=True)):
                flip, (image_height, image_width) = bool(flips[position]), image.shape[:2]
                top, left, height, width = crop = tuple(crops[position].tolist())
                patch = image[top : top + height, left : left + width]
                patch = self.policy.change_patch(patch, index, crop, image_height, image_width, policy_draws[position])
                pixels[position] = resize_patch(patch, size, flip=flip)
                if self.policy.needs_masks and view == 0:
                    mask = self.policy.patch_mask(index, crop, image_height, image_width)
                    if mask is not None:  # it is cut, resized and mirrored as the view is
                        columns["masks"][position] = resize_patch(mask, size, flip=flip)
        return columns


PreparedViews = tuple[list[Tensor], ViewBatch]
Channels = Sequence[float]
"""One number per channel."""


def prepared_views(
    batches: Iterator[ViewBatch], device: torch.device, mean: Channels, std: Channels
) -> Generator[PreparedViews, None, None]:
    """Prepare each batch's views in a thread of its own while the batch before it trains.

    On a CPU one core then works on colours and another on convolutions; two threads on each operation in turn were
    slower than one, as most operations are too short to share.

    Args:
        batches: Batches in order.
        device: Where to train.
        mean: Mean that the network expects, of values from 0 to 1.
        std: Standard deviation that the network expects.

    Yields:
        The views, (N, 3, H, W) float each, and the batch that they are of.
    """

    def prepare(batch: ViewBatch) -> list[Tensor]:
        return [prepare_view(batch, position, device, mean, std) for position in range(len(batch.views))]

    with ThreadPoolExecutor(1, thread_name_prefix="colours") as pool:
        for batch, (views,) in prefetched(batches, lambda batch: [pool.submit(prepare, batch)], ahead=1):
            yield views, batch


def prepare_view(
    batch: ViewBatch, position: int, device: torch.device, mean: Channels = IMAGENET_MEAN, std: Channels = IMAGENET_STD
) -> Tensor:
    """Move one of the views to the device, change its colours and normalise it: uint8 to float (N, 3, H, W)."""
    images = batch.views[position].to(device, non_blocking=True).float().div_(255).contiguous()
    kernel = blur_kernel_size(images.shape[-1])
    images = augment_colors(images, batch.colors[position], blur_kernel_size=kernel)
    constants = torch.tensor([[*mean], [*std]]).to(device, non_blocking=True)
    subtracted, divisor = constants.view(2, 1, 3, 1, 1)
    return images.sub_(subtracted).div_(divisor).contiguous(memory_format=torch.channels_last)


def blur_kernel_size(size: int) -> int:
    """Return the width of the blur: 23 pixels at 224 (paper, appendix B.1), in proportion at other sizes, odd."""
    return max(2 * round(11 * size / 224) + 1, 3)
