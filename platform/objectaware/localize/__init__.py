"""Object localization without labels: soft maps, their refinement, boxes, and the store that keeps them."""

from objectaware.localize.boxes import extract_boxes, keep_large_components
from objectaware.localize.contracam import contracam, contracam_iterations
from objectaware.localize.crf import dense_crf
from objectaware.localize.expansion import expand_resolution

__all__ = [
    "contracam",
    "contracam_iterations",
    "dense_crf",
    "expand_resolution",
    "extract_boxes",
    "keep_large_components",
]
