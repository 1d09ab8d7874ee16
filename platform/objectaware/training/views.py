"""The views of each sample: drawn by counter, cut on the CPU in threads, then coloured on the training device."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Protocol

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


@dataclass(frozen=True)
class ViewPart:
    """Views of n samples, before they are put together to a `ViewBatch`.

    Attributes:
        pixels: Of each view, (n, H, W, 3) uint8.
        color_draws: Of V views, (V, n, NUM_COLOR_DRAWS).
        mix_draws: (n, NUM_MIX_DRAWS).
        masks: Under view 1, (n, H, W) uint8, where the policy needs them.
        unreadable: Whether another image stands in for a sample's, (n,).
    """

    pixels: tuple[NDArray[np.uint8], ...]
    color_draws: NDArray[np.float64]
    mix_draws: NDArray[np.float64]
    masks: NDArray[np.uint8] | None
    unreadable: NDArray[np.bool_]


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

    def submit(self, pool: ThreadPoolExecutor, epoch: int, indices: NDArray[np.int64]) -> list[Future[ViewPart]]:
        """Load some samples in the pool's threads, in parts of equal size and in order."""
        parts = np.array_split(indices, min(len(indices), 2 * self.num_threads))
        return [pool.submit(self.load, epoch, part) for part in parts]

    def assemble(self, indices: NDArray[np.int64], parts: Sequence[ViewPart]) -> ViewBatch:
        """Concatenate the parts of a batch, which are in order."""
        views, parameters = [], []
        low, high = self.colors.blur_sigma
        for view, (size, *_) in enumerate(self.views):
            # The recipe's pixels are those of views of 224; smaller views would lose all texture to as strong a blur.
            distribution = replace(self.colors, blur_sigma=(low * size / 224, high * size / 224))
            pixels = np.concatenate([part.pixels[view] for part in parts])  # (N, H, W, 3)
            views.append(torch.from_numpy(pixels).permute(0, 3, 1, 2))
            draws = np.concatenate([part.color_draws[view] for part in parts])
            parameters.append(sample_colors(draws, distribution))
        masks = [part.masks for part in parts if part.masks is not None]
        return ViewBatch(
            views=tuple(views),
            colors=tuple(parameters),
            mix_draws=torch.from_numpy(np.concatenate([part.mix_draws for part in parts])),
            masks=torch.from_numpy(np.concatenate(masks)).unsqueeze(1) if masks else None,
            unreadable=np.concatenate([part.unreadable for part in parts]),
            indices=indices,
        )

    def load(self, epoch: int, indices: NDArray[np.int64]) -> ViewPart:
        """Load the views of some samples in this thread.

        Args:
            epoch: Epoch, from 0.
            indices: Samples, shape (n,).

        Returns:
            Their pixels, draws and masks.
        """
        images = [self.images.read(int(index)) for index in indices]
        unreadable = np.array([self.is_unreadable(int(index)) for index in indices], dtype=np.bool_)
        region_draws = counter_uniforms(self.seed, epoch, indices, NUM_POLICY_DRAWS, stream=_STREAM_REGION)
        placed = zip(indices.tolist(), images, region_draws, strict=True)
        regions = [self.policy.region(index, image.shape[0], image.shape[1], draw) for index, image, draw in placed]
        tops, lefts, heights, widths = np.array(regions, dtype=np.int64).T
        pixels = tuple(np.empty((len(indices), view.size, view.size, 3), dtype=np.uint8) for view in self.views)
        masks = np.zeros(pixels[0].shape[:3], dtype=np.uint8) if self.policy.needs_masks else None
        draws = counter_uniforms(self.seed, epoch, indices, len(self.views) * _VIEW_DRAWS, stream=_STREAM_VIEWS)
        draws = draws.reshape(len(indices), len(self.views), _VIEW_DRAWS)
        for view, (size, min_scale, max_scale) in enumerate(self.views):
            crop_draws, policy_draws = draws[:, view, :NUM_CROP_DRAWS], draws[:, view, -NUM_POLICY_DRAWS:]
            crops = sample_crops(crop_draws, heights, widths, min_scale=min_scale, max_scale=max_scale)
            crops[:, 0] += tops
            crops[:, 1] += lefts
            flips = sample_flips(crop_draws)
            for position, image in enumerate(images):
                index, flip, (rows, columns) = int(indices[position]), bool(flips[position]), image.shape[:2]
                top, left, height, width = crop = tuple(crops[position].tolist())
                patch = image[top : top + height, left : left + width]
                patch = self.policy.change_patch(patch, index, crop, rows, columns, policy_draws[position])
                pixels[view][position] = resize_patch(patch, size, flip=flip)
                if masks is not None and view == 0:
                    mask = self.policy.patch_mask(index, crop, rows, columns)
                    # Without a mask it stays 0. It is cut, resized and mirrored as the view is.
                    masks[position] = 0 if mask is None else resize_patch(mask, size, flip=flip)
        colors = draws[:, :, NUM_CROP_DRAWS : NUM_CROP_DRAWS + NUM_COLOR_DRAWS].swapaxes(0, 1)
        mix_draws = counter_uniforms(self.seed, epoch, indices, NUM_MIX_DRAWS, stream=_STREAM_MIX)
        return ViewPart(pixels, colors, mix_draws, masks, unreadable)


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
    images = augment_colors(images, batch.colors[position].to(device), blur_kernel_size=kernel)
    subtracted, divisor = (images.new_tensor(values).view(1, 3, 1, 1) for values in (mean, std))
    return images.sub_(subtracted).div_(divisor).contiguous(memory_format=torch.channels_last)


def blur_kernel_size(size: int) -> int:
    """Return the width of the blur: 23 pixels at 224 (paper, appendix B.1), in proportion at other sizes, odd."""
    return max(2 * round(11 * size / 224) + 1, 3)
