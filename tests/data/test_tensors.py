from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from objectaware.data.tensors import normalise


def test_golden_values() -> None:
    image = np.array([[[[255, 255, 255], [0, 128, 51]]]], dtype=np.uint8)
    tensor = normalise(image)
    assert tensor.dtype == torch.float32
    assert tensor.shape == (1, 3, 1, 2)
    # (1 - .485) / .229 and so on; (0 - .485) / .229, (128/255 - .456) / .224, (.2 - .406) / .225
    white, other = tensor[0, :, 0, 0].tolist(), tensor[0, :, 0, 1].tolist()
    assert white == pytest.approx([2.248908, 2.428571, 2.640000], abs=1e-6)
    assert other == pytest.approx([-2.117904, 0.205182, -0.915556], abs=1e-6)


def test_batch_is_contiguous_and_rows_stay_rows() -> None:
    images = np.zeros((2, 3, 4, 3), dtype=np.uint8)
    images[1, 2, 0, 1] = 255
    tensor = normalise(images)
    assert tensor.shape == (2, 3, 3, 4)
    assert tensor.is_contiguous()
    assert torch.nonzero(tensor > 2).tolist() == [[1, 1, 2, 0]]


def test_read_only_arrays_are_taken_without_a_warning_and_left_as_they_are() -> None:
    images = np.full((1, 2, 2, 3), 9, dtype=np.uint8)
    images.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        normalise(images)
    assert (images == 9).all()
