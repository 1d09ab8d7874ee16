"""Policy `object_crop`: both views are cropped from around one object."""

from __future__ import annotations

from typing import ClassVar, Literal

from objectaware.augment.crop import object_region
from objectaware.config import PolicyInputs
from objectaware.training.policies.base import Boxes, Draws, Policy, Region
from objectaware.training.policies.masks import LocatedPolicyConfig


class ObjectCropConfig(LocatedPolicyConfig):
    """Both views are cropped from around one object (paper, section 2.3).

    Attributes:
        masks: Mask store from which the policy takes boxes; or `ground_truth` for the boxes of COCO's annotations.
    """

    takes: ClassVar = "boxes"
    needs_whole_pictures: ClassVar = True

    name: Literal["object_crop"] = "object_crop"

    def build(self, inputs: PolicyInputs) -> ObjectCrop:
        """Build the policy on the images' boxes."""
        return ObjectCrop(self.open_boxes(inputs))


class ObjectCrop(Policy):
    """Policy `object_crop`: both views come from one box, which is drawn again at each access (paper §2.3).

    Args:
        boxes: Each image's boxes.
    """

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes

    def region(self, index: int, height: int, width: int, draws: Draws) -> Region:
        """Return one of the image's boxes, or the whole image if it has no boxes."""
        return object_region(self._boxes(index), float(draws[0]), height, width)
