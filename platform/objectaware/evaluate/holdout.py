"""The part of a training split that chooses the penalty of linear evaluation."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from objectaware.errors import InputError

PAPER_HOLDOUT_SIZES: Final = {
    "cifar10": 10_000,
    "cifar100": 10_000,
    "coco-crop": 10_000,
    "cub": 1_000,
    "food101": 7_575,
    "pets": 740,
}
"""Samples that the paper's linear evaluation holds out of the training split (official-implementation §2). Of
ImageNet-9 it holds out 5%; Flowers102 brings a validation split of its own."""


def stratified_holdout(
    labels: NDArray[np.integer], *, fraction: float = 0.2, size: int | None = None, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draws the same share of each class, without replacement.

    Args:
        labels: (N,) class of each sample.
        fraction: Share in (0, 1), rounded to whole samples of a class; a class is never emptied.
        size: Number of samples held out in all, in place of the share; classes give in proportion to their
            samples, as evenly as whole samples and the rule that none is emptied allow.
        seed: Seed of the draw.

    Returns:
        Sorted indices of the samples kept, and of those held out.

    Raises:
        InputError: The share or the number is out of range, or so small that nothing is held out.
    """
    classes, counts = np.unique(labels, return_counts=True)
    numbers = _shares(counts, fraction) if size is None else _apportion(counts, size)
    generator = np.random.default_rng(seed)
    held = np.zeros(len(labels), dtype=bool)
    for label, number in zip(classes, numbers, strict=True):
        held[generator.permutation(np.flatnonzero(labels == label))[:number]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def _shares(counts: NDArray[np.int64], fraction: float) -> NDArray[np.int64]:
    """Number of samples held out of each class, for a share."""
    if not 0.0 < fraction < 1.0:
        problem = "must lie between 0 and 1"
        raise InputError("holdout_fraction", fraction, problem, "Give a share such as 0.2.")
    numbers = np.minimum(np.rint(fraction * counts).astype(np.int64), counts - 1)
    if not numbers.any():
        problem = f"holds out nothing of {counts.sum()} samples"
        raise InputError("holdout_fraction", fraction, problem, "Give a larger share, or more images.")
    return numbers


def _apportion(counts: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Number of samples held out of each class, `size` in all, by largest remainders."""
    most = int((counts - 1).sum())
    if not 1 <= size <= most:
        problem = f"must lie in 1 to {most}: {counts.sum()} samples less one for each of {len(counts)} classes"
        raise InputError("holdout_size", size, problem, "Give a smaller number, or holdout_fraction.")
    quotas = size * counts / counts.sum()
    numbers = np.minimum(np.floor(quotas).astype(np.int64), counts - 1)
    while numbers.sum() < size:
        lacking = np.where(numbers < counts - 1, quotas - numbers, -np.inf)
        numbers[int(lacking.argmax())] += 1
    return numbers
