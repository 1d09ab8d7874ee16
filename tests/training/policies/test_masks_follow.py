"""Masks go through crop and mirror with their picture, to the pixel: here each mask is painted from its picture."""

from __future__ import annotations

import numpy as np
import torch

from objectaware.training.policies.background_hardmix import BackgroundHardMix
from objectaware.training.policies.background_mixup import OfficialBackground
from pictures import load_views, make_loader

INDICES = list(range(24))


class Painted:
    """White objects without symmetry on black; the last picture is green, and all of it background."""

    def __len__(self) -> int:
        return 24

    def mask(self, index: int) -> np.ndarray:
        """255 on the object."""
        generator = np.random.default_rng(index)
        mask = np.zeros((90, 120), dtype=np.uint8)
        if index < 23:
            top, left = generator.integers(0, 50), generator.integers(0, 70)
            mask[top : top + 40, left : left + 15] = mask[top : top + 11, left : left + 45] = 255
        return mask

    def read(self, index: int) -> np.ndarray:
        if index == 23:
            return np.tile(np.array([0, 200, 0], dtype=np.uint8), (90, 120, 1))
        return np.repeat(self.mask(index)[:, :, None], 3, axis=2)


def test_a_pasted_object_leaves_no_seam() -> None:
    """White object on green: wherever the mask lay beside the object, black would be left or white be lost."""
    pictures = Painted()
    policy = BackgroundHardMix(pictures, pictures.mask, probability=1.0)
    policy.donors = np.array([23])
    before = load_views(make_loader(_Nothing(pictures), images=pictures), 0, INDICES[:23]).int()
    after = load_views(make_loader(policy, images=pictures), 0, INDICES[:23]).int()
    assert torch.equal(after[:, :, 0], before[:, :, 0])  # as much red as the object had
    expected_green = before[:, :, 0] + (255 - before[:, :, 0]) * 200 / 255
    assert (after[:, :, 1] - expected_green).abs().max() <= 1.5


def test_the_mask_of_view_1_is_the_view_of_the_mask() -> None:
    pictures = Painted()
    policy = OfficialBackground(pictures.mask, probability=1.0, threshold=0.2, hard=False)
    (batch,) = make_loader(policy, images=pictures).epoch(0, [np.array(INDICES)])
    assert batch.masks is not None
    assert torch.equal(batch.masks[:23, 0], batch.views[0][:23, 0])
    assert not batch.masks[23].any()
    different = (batch.masks[:, 0] != batch.views[1][:, 0]).flatten(1).any(1)
    assert different.sum() > 12  # view 2 was cut elsewhere


class _Nothing(BackgroundHardMix):
    """The same policy with probability 0: the pictures as they are."""

    def __init__(self, pictures: Painted) -> None:
        super().__init__(pictures, pictures.mask, probability=0.0)
