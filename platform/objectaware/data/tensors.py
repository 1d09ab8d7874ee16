"""From images to the tensors that networks take."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from objectaware.data.images import IMAGENET_MEAN, IMAGENET_STD


def normalise(images: NDArray[np.uint8]) -> torch.Tensor:
    """Turn a batch of images into a tensor normalised by ImageNet's mean and standard deviation.

    Args:
        images: Shape (N, H, W, 3), RGB, 0 to 255.

    Returns:
        float32 of shape (N, 3, H, W), contiguous: (value / 255 - mean) / std for each channel.
    """
    assert images.dtype == np.uint8, images.dtype
    assert images.ndim == 4, images.shape
    # torch.tensor copies, where torch.from_numpy would warn about the read-only arrays of Ray's object store.
    tensor = torch.tensor(images).permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
    mean = torch.tensor(IMAGENET_MEAN).view(3, 1, 1)
    std = torch.tensor(IMAGENET_STD).view(3, 1, 1)
    return tensor.div_(255).sub_(mean).div_(std)
