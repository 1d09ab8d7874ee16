"""Dense conditional random field that snaps a soft mask to edges (Krähenbühl and Koltun, 2011)."""

from __future__ import annotations

import numpy as np
import pydensecrf.densecrf as dcrf
from numpy.typing import NDArray

from objectaware.errors import InputError

_PROBABILITY_FLOOR = 1e-20


def dense_crf(
    image: NDArray[np.uint8],
    foreground: NDArray[np.floating],
    *,
    num_iterations: int = 5,
    gaussian_sxy: float = 3.0,
    gaussian_compat: float = 3.0,
    bilateral_sxy: float = 80.0,
    bilateral_srgb: float = 13.0,
    bilateral_compat: float = 10.0,
) -> NDArray[np.float32]:
    """Refine a foreground probability by mean-field inference in a fully connected two-label CRF.

    The unary energy is −log([p, 1−p] + 1e-20). Neighbours in position (Gaussian) and in position and colour
    (bilateral) pull labels together. The defaults are pydensecrf's published ones, which the paper and the
    official code use on pictures of 224×224. On smaller pictures, reduce `bilateral_sxy` in proportion to cover the
    same part of the picture.

    Args:
        image: (H, W, 3) uint8 RGB, any aspect ratio.
        foreground: p, (H, W) in [0, 1].
        num_iterations: Mean-field updates, at least 0.
        gaussian_sxy: Standard deviation of the position kernel in pixels, above 0.
        gaussian_compat: Weight of the position kernel.
        bilateral_sxy: Standard deviation in pixels of the position part of the bilateral kernel, above 0.
        bilateral_srgb: Standard deviation in grey levels (0 to 255) of its colour part, above 0.
        bilateral_compat: Weight of the bilateral kernel.

    Returns:
        Q of the foreground label, (H, W) float32 in [0, 1].

    Raises:
        InputError: The image or foreground has another shape, type or range, or a setting is out of range.
    """
    _check_inputs(image, foreground)
    _check_settings(num_iterations, gaussian_sxy, bilateral_sxy, bilateral_srgb)
    height, width = foreground.shape
    probability = foreground.astype(np.float32).ravel()
    unary = -np.log(np.stack([probability, 1 - probability]) + _PROBABILITY_FLOOR)
    # The library takes width before height. The official code swaps them, which works only for squares.
    field = dcrf.DenseCRF2D(width, height, 2)
    field.setUnaryEnergy(np.ascontiguousarray(unary, dtype=np.float32))
    field.addPairwiseGaussian(sxy=gaussian_sxy, compat=gaussian_compat)
    # The library takes only contiguous, writable memory; an image in Ray's object store is read-only.
    pixels = np.require(image, requirements=["C_CONTIGUOUS", "WRITEABLE"])
    field.addPairwiseBilateral(sxy=bilateral_sxy, srgb=bilateral_srgb, rgbim=pixels, compat=bilateral_compat)
    marginals = np.asarray(field.inference(num_iterations), dtype=np.float32)
    return np.clip(marginals[0].reshape(height, width), 0.0, 1.0)


def _check_inputs(image: NDArray[np.uint8], foreground: NDArray[np.floating]) -> None:
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        found = f"{image.dtype} {image.shape}"
        raise InputError("image", found, "must be uint8 (H, W, 3)", "Decode it to RGB, do not normalise it.")
    if foreground.shape != image.shape[:2]:
        remedy = f"Resize the mask to the image's {image.shape[:2]}."
        raise InputError("foreground", foreground.shape, "must have the image's height and width", remedy)
    if not np.issubdtype(foreground.dtype, np.floating):
        raise InputError("foreground", foreground.dtype, "must be floating point", "Give probabilities.")
    # NaN fails both comparisons, so the negation also refuses NaN.
    if not (foreground.min() >= 0 and foreground.max() <= 1):
        found = f"{foreground.min()} to {foreground.max()}"
        raise InputError("foreground", found, "must lie in [0, 1]", "Scale the mask to probabilities.")


def _check_settings(num_iterations: int, gaussian_sxy: float, bilateral_sxy: float, bilateral_srgb: float) -> None:
    if num_iterations < 0:
        raise InputError("num_iterations", num_iterations, "must not be negative", "The usual is 5.")
    widths = {"gaussian_sxy": gaussian_sxy, "bilateral_sxy": bilateral_sxy, "bilateral_srgb": bilateral_srgb}
    for name, width in widths.items():
        if not width > 0:
            raise InputError(name, width, "must be positive", "Give a standard deviation.")
