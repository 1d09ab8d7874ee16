"""From images to the tensors that networks take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from objectaware.data.images import IMAGENET_MEAN, IMAGENET_STD


def normalise(
    images: NDArray[np.uint8], mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD
) -> torch.Tensor:
    """Turn a batch of images into a tensor normalised by a mean and standard deviation per channel.

    Args:
        images: Shape (N, H, W, 3), RGB, 0 to 255.
        mean: Of values from 0 to 1; by default ImageNet's, like `std`.
        std: Standard deviation.

    Returns:
        float32 of shape (N, 3, H, W), contiguous: (value / 255 - mean) / std for each channel.
    """
    assert images.dtype == np.uint8, images.dtype
    assert images.ndim == 4, images.shape
    # torch.tensor copies, where torch.from_numpy would warn about the read-only arrays of Ray's object store.
    tensor = torch.tensor(images).permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
    return tensor.div_(255).sub_(torch.tensor(mean).view(3, 1, 1)).div_(torch.tensor(std).view(3, 1, 1))
