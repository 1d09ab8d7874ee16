"""Object localization without labels: soft maps, their refinement, boxes, and the store that keeps them."""

from objectaware.localize.contracam import contracam
from objectaware.localize.localizer import expand_resolution
from objectaware.localize.objects import dense_crf, extract_boxes, keep_large_components

__all__ = ["contracam", "dense_crf", "expand_resolution", "extract_boxes", "keep_large_components"]
