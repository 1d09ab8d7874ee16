"""Two views of each sample: drawn by counter, cut on the CPU, loaded ahead in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from objectaware.augment.color import NUM_COLOR_DRAWS, ColorDistribution, ColorParameters, sample_colors
from objectaware.augment.crop import NUM_CROP_DRAWS, resize_patch, sample_crops, sample_flips
from objectaware.augment.randomness import counter_uniforms
from objectaware.data.images import Images
from objectaware.training.policies import NUM_MIX_DRAWS, NUM_POLICY_DRAWS, Policy, Region

_STREAM_REGION, _STREAM_VIEWS, _STREAM_MIX = 0, 1, 2
_VIEW_DRAWS = NUM_CROP_DRAWS + NUM_COLOR_DRAWS + NUM_POLICY_DRAWS


@dataclass(frozen=True)
class ViewBatch:
    """Two views of N samples before their colours are changed.

    Attributes:
        views: Pixels of view 1 and view 2, uint8 (N, 3, H, W) in channels-last order.
        colors: Colour parameters of view 1 and view 2.
        mix_draws: Uniform numbers of each sample for the policy's `mix_batch`, (N, NUM_MIX_DRAWS).
        masks: Masks under view 1 in 8 bits, (N, 1, H, W) uint8, where the policy needs them.
        unreadable: Whether another image stands in for a sample's, which cannot be read, (N,).
        indices: The samples, (N,).
    """

    views: tuple[torch.Tensor, torch.Tensor]
    colors: tuple[ColorParameters, ColorParameters]
    mix_draws: torch.Tensor
    masks: torch.Tensor | None
    unreadable: NDArray[np.bool_]
    indices: NDArray[np.int64]


@dataclass(frozen=True)
class ViewPart:
    """What is loaded of n samples, before it is put together to a `ViewBatch`.

    Attributes:
        pixels: Of both views, (2, n, H, W, 3) uint8.
        color_draws: Of both views, (2, n, NUM_COLOR_DRAWS).
        mix_draws: (n, NUM_MIX_DRAWS).
        masks: Under view 1, (n, H, W) uint8, where the policy needs them.
        unreadable: Whether another image stands in for a sample's, (n,).
    """

    pixels: NDArray[np.uint8]
    color_draws: NDArray[np.float64]
    mix_draws: NDArray[np.float64]
    masks: NDArray[np.uint8] | None
    unreadable: NDArray[np.bool_]


class ViewSource(Protocol):
    """Where a training's batches come from.

    Attributes:
        policy: What is done to the positives.
    """

    policy: Policy

    def epoch(self, epoch: int, batches: Sequence[NDArray[np.int64]], *, first: int = 0) -> Iterator[ViewBatch]:
        """Yields an epoch's batches in order, from batch `first` on; nothing before it is read.

        Args:
            epoch: Epoch, from 0.
            batches: Sample indices of each batch of the epoch, (n,) each.
            first: Number of the first batch that is wanted.

        Yields:
            Each batch's views.
        """
        ...


class ViewLoader:
    """Loads batches of two views, some batches ahead of their use.

    Every number drawn is a function of seed, epoch and sample (`counter_uniforms`).

    Args:
        images: The data set.
        policy: What is done to the positives.
        size: Side of the views in pixels.
        min_crop_scale: Smallest share of the image (or of the object's region) that a crop covers.
        colors: How strongly colours are changed; its blur is meant for views of 224 pixels and scaled to `size`.
        seed: Seed of the run.
        num_threads: Threads that decode and crop; Pillow works outside the interpreter's lock.
        is_unreadable: Tells of an image that was read whether another one stands in for it.

    Attributes:
        policy: What is done to the positives.
    """

    def __init__(
        self,
        images: Images,
        policy: Policy,
        *,
        size: int,
        min_crop_scale: float,
        colors: ColorDistribution,
        seed: int,
        num_threads: int,
        is_unreadable: Callable[[int], bool] = lambda index: False,
    ) -> None:
        self._images = images
        self._is_unreadable = is_unreadable
        self.policy = policy
        self._size = size
        self._min_crop_scale = min_crop_scale
        self._seed = seed
        self._num_threads = num_threads
        # The recipe's pixels are those of views of 224; smaller views would lose all texture to as strong a blur.
        low, high = colors.blur_sigma
        self._colors = replace(colors, blur_sigma=(low * size / 224, high * size / 224))

    def epoch(self, epoch: int, batches: Sequence[NDArray[np.int64]], *, first: int = 0) -> Iterator[ViewBatch]:
        """Yields an epoch's batches in order (`ViewSource.epoch`)."""
        with ThreadPoolExecutor(self._num_threads, thread_name_prefix="views") as pool:
            waiting: deque[tuple[NDArray[np.int64], list[Future[ViewPart]]]] = deque()
            for indices in batches[first:]:
                waiting.append((indices, self.submit(pool, epoch, indices)))
                if len(waiting) > 2:
                    yield self._collect(*waiting.popleft())
            while waiting:
                yield self._collect(*waiting.popleft())

    def submit(self, pool: ThreadPoolExecutor, epoch: int, indices: NDArray[np.int64]) -> list[Future[ViewPart]]:
        """Has some samples loaded in the pool's threads, shared out evenly; their parts are in order."""
        parts = np.array_split(indices, min(len(indices), 2 * self._num_threads))
        return [pool.submit(self.load, epoch, part) for part in parts]

    def _collect(self, indices: NDArray[np.int64], futures: list[Future[ViewPart]]) -> ViewBatch:
        return self.assemble(indices, [future.result() for future in futures])

    def assemble(self, indices: NDArray[np.int64], parts: Sequence[ViewPart]) -> ViewBatch:
        """Puts the parts of a batch, in order, together."""
        views, parameters = [], []
        for view in range(2):
            pixels = np.concatenate([part.pixels[view] for part in parts])  # (N, H, W, 3)
            views.append(torch.from_numpy(pixels).permute(0, 3, 1, 2))
            parameters.append(sample_colors(np.concatenate([part.color_draws[view] for part in parts]), self._colors))
        masks = [part.masks for part in parts if part.masks is not None]
        return ViewBatch(
            views=(views[0], views[1]),
            colors=(parameters[0], parameters[1]),
            mix_draws=torch.from_numpy(np.concatenate([part.mix_draws for part in parts])),
            masks=torch.from_numpy(np.concatenate(masks)).unsqueeze(1) if masks else None,
            unreadable=np.concatenate([part.unreadable for part in parts]),
            indices=indices,
        )

    def load(self, epoch: int, indices: NDArray[np.int64]) -> ViewPart:
        """Loads both views of some samples in this thread.

        Args:
            epoch: Epoch, from 0.
            indices: Samples, shape (n,).

        Returns:
            Their pixels, draws and masks.
        """
        images = [self._images.read(int(index)) for index in indices]
        unreadable = np.array([self._is_unreadable(int(index)) for index in indices], dtype=np.bool_)
        regions = self._regions(epoch, indices, images)
        pixels = np.empty((2, len(indices), self._size, self._size, 3), dtype=np.uint8)
        masks = np.zeros((len(indices), self._size, self._size), dtype=np.uint8) if self.policy.needs_masks else None
        draws = counter_uniforms(self._seed, epoch, indices, 2 * _VIEW_DRAWS, stream=_STREAM_VIEWS)
        draws = draws.reshape(len(indices), 2, _VIEW_DRAWS)
        for view in range(2):
            crop_draws, policy_draws = draws[:, view, :NUM_CROP_DRAWS], draws[:, view, -NUM_POLICY_DRAWS:]
            crops = sample_crops(crop_draws, regions[:, 2], regions[:, 3], min_scale=self._min_crop_scale)
            crops[:, :2] += regions[:, :2]
            flips = sample_flips(crop_draws)
            for position, image in enumerate(images):
                index, crop, flip = int(indices[position]), _region(crops[position]), bool(flips[position])
                pixels[view, position] = self._view(image, index, crop, flip, policy_draws[position])
                if masks is not None and view == 0:
                    masks[position] = self._mask(image, index, crop, flip)
        colors = draws[:, :, NUM_CROP_DRAWS : NUM_CROP_DRAWS + NUM_COLOR_DRAWS].swapaxes(0, 1)
        mix_draws = counter_uniforms(self._seed, epoch, indices, NUM_MIX_DRAWS, stream=_STREAM_MIX)
        return ViewPart(pixels, colors, mix_draws, masks, unreadable)

    def _regions(self, epoch: int, indices: NDArray[np.int64], images: list[NDArray[np.uint8]]) -> NDArray[np.int64]:
        draws = counter_uniforms(self._seed, epoch, indices, NUM_POLICY_DRAWS, stream=_STREAM_REGION)
        regions = [
            self.policy.region(int(index), image.shape[0], image.shape[1], draw)
            for index, image, draw in zip(indices, images, draws, strict=True)
        ]
        return np.array(regions, dtype=np.int64)

    def _view(
        self, image: NDArray[np.uint8], index: int, crop: Region, flip: bool, draws: NDArray[np.float64]
    ) -> NDArray[np.uint8]:
        top, left, height, width = crop
        patch = image[top : top + height, left : left + width]
        patch = self.policy.change_patch(patch, index, crop, image.shape[0], image.shape[1], draws)
        return resize_patch(patch, self._size, flip=flip)

    def _mask(self, image: NDArray[np.uint8], index: int, crop: Region, flip: bool) -> NDArray[np.uint8]:
        """The policy's mask under a view, (size, size), cut, resized and mirrored as the view is."""
        mask = self.policy.patch_mask(index, crop, image.shape[0], image.shape[1])
        if mask is None:
            return np.zeros((self._size, self._size), dtype=np.uint8)
        return resize_patch(mask, self._size, flip=flip)


def _region(crop: NDArray[np.int64]) -> Region:
    top, left, height, width = (int(value) for value in crop)
    return top, left, height, width
