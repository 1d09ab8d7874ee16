"""PxAP of Choe et al. (2020): average precision of pixels, as wsolevaluation measures it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from objectaware.errors import InputError
from objectaware.evaluate.max_box_acc import SCORE_THRESHOLDS

# The tool's bins: a step each, [1, 2] for scores of 1, and one that stays empty and begins the curve at recall 0.
_EDGES: NDArray[np.float64] = np.append(SCORE_THRESHOLDS, [1.0, 2.0, 3.0])


def px_ap(
    score_maps: Iterable[NDArray[np.floating]],
    truths: Iterable[NDArray[np.bool_]],
    ignored: Iterable[NDArray[np.bool_]] | None = None,
) -> float:
    """Area under the curve of precision over recall of all pixels of all images together.

    Precision and recall are taken at 1000 thresholds; the area is the sum of each step in recall times the
    precision after it. No threshold is chosen, so that nothing in it is an oracle.

    Args:
        score_maps: Maps (H, W) in [0, 1], an array or a stream.
        truths: For each map its true foreground (H, W).
        ignored: For each map the pixels (H, W) that take no part; by default all take part.

    Returns:
        Per cent.

    Raises:
        InputError: No true pixel, not as many masks as maps, or what `pixel_histograms` refuses.
    """
    total = np.zeros((2, len(_EDGES) - 1), dtype=np.int64)
    for score_map, truth, left_out in itertools.zip_longest(score_maps, truths, () if ignored is None else ignored):
        if score_map is None or truth is None or (ignored is not None and left_out is None):
            raise InputError("truths", "another number", "not as many masks as maps", "Give one a map.")
        total += pixel_histograms(score_map, truth, left_out)
    return average_precision(total)


def pixel_histograms(
    score_map: NDArray[np.floating], truth: NDArray[np.bool_], ignored: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """How many true pixels (row 0) and other pixels (row 1) of one image have each score; sums make `px_ap`.

    Args:
        score_map: (H, W) in [0, 1].
        truth: (H, W) boolean.
        ignored: (H, W) boolean, pixels that are in neither row whatever the truth says.

    Returns:
        (2, 1002), scores ascending.

    Raises:
        InputError: Shapes differ, a mask is not boolean, or scores lie outside [0, 1].
    """
    counted = np.ones_like(truth, dtype=np.bool_) if ignored is None else ~ignored
    for field, mask in (("truths", truth), ("ignored", counted)):
        if mask.dtype != np.bool_ or mask.shape != score_map.shape:
            found = f"{mask.dtype} {mask.shape}"
            raise InputError(field, found, f"must be boolean {score_map.shape}", "Give masks of the maps' size.")
    if not (score_map.min() >= 0 and score_map.max() <= 1):  # NaN fails both comparisons
        found = f"{score_map.min()} to {score_map.max()}"
        raise InputError("score_maps", found, "must lie in [0, 1]", "Normalise each map to it.")
    return np.stack([np.histogram(score_map[pixels], bins=_EDGES)[0] for pixels in (truth & counted, ~truth & counted)])


def average_precision(histograms: NDArray[np.int64]) -> float:
    """The area under the curve in per cent, of summed `pixel_histograms`.

    Raises:
        InputError: There is no true pixel.
    """
    true_positives, false_positives = histograms[:, ::-1].cumsum(axis=1)
    if true_positives[-1] == 0:
        raise InputError("truths", "no foreground", "holds no true pixel", "Give images with objects.")
    predicted = true_positives + false_positives
    precision = true_positives / np.maximum(predicted, 1)  # where nothing is predicted, recall does not step either
    recall = true_positives / true_positives[-1]
    return float((precision[1:] * np.diff(recall)).sum() * 100)
