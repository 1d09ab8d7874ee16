"""Finding objects without labels: soft maps, their refinement, boxes, and the store that keeps them."""

from objectaware.localize.boxes import extract_boxes
from objectaware.localize.classifier_cam import classifier_cam
from objectaware.localize.components import keep_large_components
from objectaware.localize.contracam import contracam, contracam_iterations
from objectaware.localize.crf import dense_crf
from objectaware.localize.expansion import expand_resolution
from objectaware.localize.integrated_gradients import integrated_gradients
from objectaware.localize.smoothgrad import smoothgrad
from objectaware.localize.trivial import center_box, full_image

__all__ = [
    "center_box",
    "classifier_cam",
    "contracam",
    "contracam_iterations",
    "dense_crf",
    "expand_resolution",
    "extract_boxes",
    "full_image",
    "integrated_gradients",
    "keep_large_components",
    "smoothgrad",
]
