"""From a soft mask to its objects: dense CRF, removal of specks, and boxes (paper section 3.3 and appendix B.2)."""

from __future__ import annotations

import cv2
import numpy as np
import pydensecrf.densecrf as dcrf
from numpy.typing import NDArray

from objectaware.data.masks import MIN_BOX_AREA, OBJECT_MARGIN
from objectaware.errors import InputError


def keep_large_components(mask: NDArray[np.bool_], *, min_area: float) -> NDArray[np.bool_]:
    """Keep the 4-connected components whose area exceeds a fraction of the picture.

    The official code keeps areas above 0.1% for mIoU and above 1% for boxes. It drops the first component that it
    meets, taking it for the background. Here a mask that fills the picture stays.

    Args:
        mask: (H, W) boolean.
        min_area: Fraction of the picture in [0, 1); components of exactly this area are removed.

    Returns:
        (H, W) boolean, a subset of `mask`.

    Raises:
        InputError: The mask is not boolean (H, W), or the fraction is out of range.
    """
    if mask.dtype != np.bool_ or mask.ndim != 2:
        raise InputError("mask", f"{mask.dtype} {mask.shape}", "must be boolean (H, W)", "Binarise it first.")
    if not 0 <= min_area < 1:
        raise InputError("min_area", min_area, "must lie in [0, 1)", "The official code takes 0.001 or 0.01.")
    _, component_of_pixel, statistics, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=4)
    is_large = statistics[:, cv2.CC_STAT_AREA] > min_area * mask.size
    is_large[0] = False  # Label 0 is the background, whether or not it has any pixel.
    return np.asarray(is_large[component_of_pixel])


def extract_boxes(
    mask: NDArray[np.floating] | NDArray[np.bool_],
    *,
    threshold: float = 0.5,
    min_area: float = MIN_BOX_AREA,
    margin: float = OBJECT_MARGIN,
    compat: str | None = None,
) -> NDArray[np.float32]:
    """Draw boxes around the connected regions above a fraction of the mask's maximum, widened by a margin.

    Args:
        mask: (H, W), boolean or soft in [0, 1].
        threshold: Pixels strictly above this fraction of the mask's maximum are foreground, in [0, 1).
        min_area: A box is kept if its area, before the margin, exceeds this fraction of the picture.
        margin: Fraction of the box's width that is added on the left and on the right, and of its height that is
            added above and below.
        compat: None takes outer contours, one box per region. "official" adds one box for each hole
            (`RETR_TREE`), in the official code's order.

    Returns:
        (n, 4) float32: x0 y0 x1 y1 relative to the picture's width and height, clipped to [0, 1]; n may be 0.

    Raises:
        InputError: The mask has another shape or type, or a setting is out of range.
    """
    _check_arguments(mask, threshold, min_area, margin, compat)
    height, width = mask.shape
    foreground = (mask > threshold * mask.max()).astype(np.uint8)
    mode = cv2.RETR_TREE if compat == "official" else cv2.RETR_EXTERNAL
    contours, _ = cv2.findContours(foreground, mode, cv2.CHAIN_APPROX_SIMPLE)
    rectangles = np.array([cv2.boundingRect(contour) for contour in contours], dtype=np.float64).reshape(-1, 4)
    is_large = rectangles[:, 2] * rectangles[:, 3] > min_area * height * width
    x, y, box_width, box_height = rectangles[is_large].T
    corners = (
        (x - margin * box_width) / width,
        (y - margin * box_height) / height,
        (x + (1 + margin) * box_width) / width,
        (y + (1 + margin) * box_height) / height,
    )
    return np.stack(corners, axis=1).clip(0, 1).astype(np.float32)


def _check_arguments(
    mask: NDArray[np.floating] | NDArray[np.bool_], threshold: float, min_area: float, margin: float, compat: str | None
) -> None:
    is_valid_type = mask.dtype == np.bool_ or np.issubdtype(mask.dtype, np.floating)
    if mask.ndim != 2 or mask.size == 0 or not is_valid_type:
        raise InputError("mask", f"{mask.dtype} {mask.shape}", "must be bool or float (H, W)", "Give one mask.")
    for name, fraction in (("threshold", threshold), ("min_area", min_area)):
        if not 0 <= fraction < 1:
            raise InputError(name, fraction, "must lie in [0, 1)", "Give a fraction.")
    if not margin >= 0:
        raise InputError("margin", margin, "must not be negative", "The paper takes 0.2.")
    if compat not in (None, "official"):
        raise InputError("compat", compat, "is unknown", 'Give None or "official".')


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
    _check_crf_inputs(image, foreground)
    if num_iterations < 0:
        raise InputError("num_iterations", num_iterations, "must not be negative", "The usual is 5.")
    widths = {"gaussian_sxy": gaussian_sxy, "bilateral_sxy": bilateral_sxy, "bilateral_srgb": bilateral_srgb}
    for name, value in widths.items():
        if not value > 0:
            raise InputError(name, value, "must be positive", "Give a standard deviation.")
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


def _check_crf_inputs(image: NDArray[np.uint8], foreground: NDArray[np.floating]) -> None:
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
