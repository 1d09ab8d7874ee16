"""Two views of each sample: drawn by counter, cut on the CPU, loaded ahead in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from objectaware.augment.color import NUM_COLOR_DRAWS, ColorDistribution, ColorParameters, sample_colors
from objectaware.augment.crop import NUM_CROP_DRAWS, resize_patch, sample_crops, sample_flips
from objectaware.augment.randomness import counter_uniforms
from objectaware.data.images import Images
from objectaware.training.policies import NUM_POLICY_DRAWS, Policy, Region

_STREAM_REGION, _STREAM_VIEWS = 0, 1
_VIEW_DRAWS = NUM_CROP_DRAWS + NUM_COLOR_DRAWS + NUM_POLICY_DRAWS


@dataclass(frozen=True)
class ViewBatch:
    """Two views of N samples before their colours are changed.

    Attributes:
        views: Pixels of view 1 and view 2, uint8 (N, 3, H, W) in channels-last order.
        colors: Colour parameters of view 1 and view 2.
        indices: The samples, (N,).
    """

    views: tuple[torch.Tensor, torch.Tensor]
    colors: tuple[ColorParameters, ColorParameters]
    indices: NDArray[np.int64]


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
    ) -> None:
        self._images = images
        self._policy = policy
        self._size = size
        self._min_crop_scale = min_crop_scale
        self._seed = seed
        self._num_threads = num_threads
        # The recipe's pixels are those of views of 224; smaller views would lose all texture to as strong a blur.
        low, high = colors.blur_sigma
        self._colors = replace(colors, blur_sigma=(low * size / 224, high * size / 224))

    def epoch(self, epoch: int, batches: Sequence[NDArray[np.int64]]) -> Iterator[ViewBatch]:
        """Yields an epoch's batches in order.

        Args:
            epoch: Epoch, from 0.
            batches: Sample indices of each batch, (n,) each.

        Yields:
            Each batch's views.
        """
        with ThreadPoolExecutor(self._num_threads, thread_name_prefix="views") as pool:
            waiting: deque[tuple[NDArray[np.int64], list[Future[_Part]]]] = deque()
            upcoming = iter(batches)
            for indices in upcoming:
                waiting.append((indices, self._submit(pool, epoch, indices)))
                if len(waiting) > 2:
                    yield _collect(*waiting.popleft(), self._colors)
            while waiting:
                yield _collect(*waiting.popleft(), self._colors)

    def _submit(self, pool: ThreadPoolExecutor, epoch: int, indices: NDArray[np.int64]) -> list[Future[_Part]]:
        parts = np.array_split(indices, min(len(indices), 2 * self._num_threads))
        return [pool.submit(self.load, epoch, part) for part in parts]

    def load(self, epoch: int, indices: NDArray[np.int64]) -> _Part:
        """Loads both views of some samples in this thread.

        Args:
            epoch: Epoch, from 0.
            indices: Samples, shape (n,).

        Returns:
            Pixels (2, n, H, W, 3) uint8 and colour draws (2, n, NUM_COLOR_DRAWS).
        """
        images = [self._images.read(int(index)) for index in indices]
        regions = self._regions(epoch, indices, images)
        pixels = np.empty((2, len(indices), self._size, self._size, 3), dtype=np.uint8)
        draws = counter_uniforms(self._seed, epoch, indices, 2 * _VIEW_DRAWS, stream=_STREAM_VIEWS)
        draws = draws.reshape(len(indices), 2, _VIEW_DRAWS)
        for view in range(2):
            crop_draws, policy_draws = draws[:, view, :NUM_CROP_DRAWS], draws[:, view, -NUM_POLICY_DRAWS:]
            crops = sample_crops(crop_draws, regions[:, 2], regions[:, 3], min_scale=self._min_crop_scale)
            crops[:, :2] += regions[:, :2]
            flips = sample_flips(crop_draws)
            for position, image in enumerate(images):
                crop: Region = tuple(crops[position].tolist())
                pixels[view, position] = self._view(
                    image, int(indices[position]), crop, bool(flips[position]), policy_draws[position]
                )
        return pixels, draws[:, :, NUM_CROP_DRAWS : NUM_CROP_DRAWS + NUM_COLOR_DRAWS].swapaxes(0, 1)

    def _regions(self, epoch: int, indices: NDArray[np.int64], images: list[NDArray[np.uint8]]) -> NDArray[np.int64]:
        draws = counter_uniforms(self._seed, epoch, indices, NUM_POLICY_DRAWS, stream=_STREAM_REGION)
        regions = [
            self._policy.region(int(index), image.shape[0], image.shape[1], draw)
            for index, image, draw in zip(indices, images, draws, strict=True)
        ]
        return np.array(regions, dtype=np.int64)

    def _view(
        self, image: NDArray[np.uint8], index: int, crop: Region, flip: bool, draws: NDArray[np.float64]
    ) -> NDArray[np.uint8]:
        top, left, height, width = crop
        patch = image[top : top + height, left : left + width]
        patch = self._policy.change_patch(patch, index, crop, image.shape[0], image.shape[1], draws)
        return resize_patch(patch, self._size, flip=flip)


_Part = tuple[NDArray[np.uint8], NDArray[np.float64]]


def _collect(indices: NDArray[np.int64], parts: list[Future[_Part]], colors: ColorDistribution) -> ViewBatch:
    results = [part.result() for part in parts]
    views, parameters = [], []
    for view in range(2):
        pixels = np.concatenate([pixels[view] for pixels, _ in results])  # (N, H, W, 3)
        views.append(torch.from_numpy(pixels).permute(0, 3, 1, 2))
        draws = np.concatenate([draws[view] for _, draws in results])
        parameters.append(sample_colors(draws, colors))
    return ViewBatch(views=(views[0], views[1]), colors=(parameters[0], parameters[1]), indices=indices)
