"""The region proposal network on a single map of stride 16."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.rpn import RegionProposalNetwork, RPNHead

from objectaware.detection.sampling import KeyedSampler

ANCHOR_SIZES = (32, 64, 128, 256, 512)
ASPECT_RATIOS = (0.5, 1.0, 2.0)
_NUM_ANCHORS_DRAWN = 256
_NUM_BEFORE_SUPPRESSION = {"training": 12_000, "testing": 6_000}


class _FullPrecisionHead(RPNHead):  # type: ignore[misc]  # torchvision has no types
    """torchvision's head, whose outputs are in 32 bits also under autocast: a box in bfloat16 is off by pixels."""

    def forward(self, x: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        logits, deltas = super().forward(x)
        return [values.float() for values in logits], [values.float() for values in deltas]


class ProposalNetwork(RegionProposalNetwork):  # type: ignore[misc]  # torchvision has no types
    """torchvision's, with detectron2's losses and a sampler of its own.

    Args:
        in_channels: Channels of the map.
        num_train_proposals: Proposals an image kept in training.
        num_test_proposals: Proposals an image kept in the test.

    Source:
        detectron2's defaults (config/defaults.py, MODEL.RPN); torchvision rounds anchors to whole pixels, detectron2
        does not.
    """

    def __init__(self, in_channels: int, *, num_train_proposals: int, num_test_proposals: int) -> None:
        super().__init__(
            AnchorGenerator((ANCHOR_SIZES,), (ASPECT_RATIOS,)),
            _FullPrecisionHead(in_channels, len(ANCHOR_SIZES) * len(ASPECT_RATIOS)),
            fg_iou_thresh=0.7,
            bg_iou_thresh=0.3,
            batch_size_per_image=_NUM_ANCHORS_DRAWN,
            positive_fraction=0.5,
            pre_nms_top_n=_NUM_BEFORE_SUPPRESSION,
            post_nms_top_n={"training": num_train_proposals, "testing": num_test_proposals},
            nms_thresh=0.7,
        )
        self.fg_bg_sampler = KeyedSampler(_NUM_ANCHORS_DRAWN, 0.5)

    def compute_loss(
        self,
        objectness: Tensor,
        pred_bbox_deltas: Tensor,
        labels: list[Tensor],
        regression_targets: list[Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Cross-entropy of objectness and L1 of the boxes over the drawn anchors, each over 256 an image.

        Args:
            objectness: Logits of all anchors of all images, (A, 1).
            pred_bbox_deltas: Predicted changes of the anchors, (A, 4).
            labels: Of each image 1 object, 0 background, -1 neither, (a,).
            regression_targets: Of each image the true changes, (a, 4).

        Source:
            detectron2, modeling/proposal_generator/rpn.py, `RPN.losses` with SMOOTH_L1_BETA 0.
        """
        drawn_positive, drawn_negative = self.fg_bg_sampler(labels)
        positive = torch.cat(drawn_positive).bool()
        drawn = positive | torch.cat(drawn_negative).bool()
        normaliser = _NUM_ANCHORS_DRAWN * len(labels)
        truth = torch.cat(labels)
        objectness_loss = F.binary_cross_entropy_with_logits(objectness.flatten()[drawn], truth[drawn], reduction="sum")
        box_loss = F.l1_loss(pred_bbox_deltas[positive], torch.cat(regression_targets)[positive], reduction="sum")
        return objectness_loss / normaliser, box_loss / normaliser

    def set_keys(self, keys: list[int]) -> None:
        """Sets the seeds that the anchors of the next batch's images are drawn by."""
        self.fg_bg_sampler.keys = keys
