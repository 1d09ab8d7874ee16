"""Pooled features of images, as the evaluations take them."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from objectaware.data.images import Images, UnreadableImage, none_readable, normalise, resize_image
from objectaware.methods.backbones import Backbone


def evaluation_view(image: NDArray[np.uint8], size: int, *, center_crop: bool) -> NDArray[np.uint8]:
    """Brings an image to the network's size.

    Args:
        image: Pixels, shape (H, W, 3).
        size: Side of the result in pixels.
        center_crop: True for the paper's protocol (short side to size · 256 / 224, then the centre); False
            squashes the whole picture, for data whose objects reach the border.

    Returns:
        Pixels, shape (size, size, 3).
    """
    if not center_crop:
        return resize_image(image, (size, size))
    short = round(size * 256 / 224)
    height, width = image.shape[:2]
    scale = short / min(height, width)
    resized = resize_image(image, (max(round(height * scale), size), max(round(width * scale), size)))
    top, left = (resized.shape[0] - size) // 2, (resized.shape[1] - size) // 2
    return resized[top : top + size, left : left + size]


@dataclass
class Features:
    """Features of the images that could be read.

    Attributes:
        values: In 32 bits on the CPU, (M, C).
        indices: The images they belong to, (M,) int64.
        unreadable: Why the others have none, by index.
    """

    values: Tensor
    indices: Tensor
    unreadable: dict[int, str] = field(default_factory=dict)


@torch.inference_mode()
def compute_features(
    backbone: Backbone,
    images: Images,
    indices: Iterable[int],
    *,
    size: int,
    center_crop: bool,
    device: torch.device,
    batch_size: int = 256,
    num_threads: int = 2,
    allow_empty: bool = False,
) -> Features:
    """Computes pooled features with batch statistics frozen.

    Args:
        backbone: Images (N, 3, H, W) to features (N, C); its mode is restored afterwards.
        images: The data set.
        indices: Which images.
        size: Side of the network's input in pixels.
        center_crop: See `evaluation_view`.
        device: Where to compute.
        batch_size: Images at a time.
        num_threads: Threads that decode.
        allow_empty: Give features (0, 0) where none of the images can be read, such as of one part of many.

    Returns:
        Features of the images that can be read.

    Raises:
        InputError: None of the images can be read.
    """

    def read(index: int) -> NDArray[np.uint8] | str:
        try:
            return evaluation_view(images.read(index), size, center_crop=center_crop)
        except UnreadableImage as error:
            return error.reason

    chosen = list(indices)
    was_training = backbone.training
    backbone.eval()
    values, kept, unreadable = [], [], {}
    with ThreadPoolExecutor(num_threads) as pool:
        for start in range(0, len(chosen), batch_size):
            views = []
            for index, view in zip(chosen[start:], pool.map(read, chosen[start : start + batch_size]), strict=False):
                if isinstance(view, str):
                    unreadable[index] = view
                else:
                    views.append(view)
                    kept.append(index)
            if views:
                batch = normalise(np.stack(views), backbone.mean, backbone.std)
                batch = batch.to(device, memory_format=torch.channels_last)
                values.append(backbone(batch).float().cpu())
    backbone.train(was_training)
    if not values and not allow_empty:
        raise none_readable(len(chosen), ((f"number {index}", reason) for index, reason in unreadable.items()))
    rows = torch.cat(values) if values else torch.empty(0, 0)
    return Features(rows, torch.tensor(kept, dtype=torch.int64), unreadable)
