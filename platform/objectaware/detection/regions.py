"""The heads of R-CNN on C4: one trunk, the backbone's last stage, from which boxes and masks are predicted."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor
from torchvision.models.detection.mask_rcnn import MaskRCNNPredictor
from torchvision.models.detection.roi_heads import RoIHeads, maskrcnn_inference
from torchvision.ops import RoIAlign, roi_align

from objectaware.detection.sampling import KeyedSampler

Target = dict[str, Tensor]
Trunk = Callable[[Tensor], Tensor]
_POOLED_SIDE = 14
_MASK_CHANNELS = 256


class RegionHeads(RoIHeads):  # type: ignore[misc]  # torchvision has no types
    """Box and mask predictions from the trunk's maps of the regions.

    torchvision's heads pool and compute features for boxes and masks apart; here a region goes through the trunk
    once, as the trunk is a whole stage of the backbone whose batch norm learns. Boxes and masks are predicted for
    each class.

    Args:
        stride: Pixels of the image a unit of the map.
        trunk_channels: Channels of the trunk's output.
        num_classes: Classes without background.
        num_regions: Regions an image that training draws, a quarter of them on objects.

    Source:
        detectron2, modeling/roi_heads/roi_heads.py, `Res5ROIHeads`, and its defaults (ROIAlignV2, L1 loss of boxes,
        a deconvolution before the masks).
    """

    def __init__(self, *, stride: int, trunk_channels: int, num_classes: int, num_regions: int) -> None:
        super().__init__(
            box_roi_pool=RoIAlign(_POOLED_SIDE, 1 / stride, sampling_ratio=0, aligned=True),
            box_head=None,
            box_predictor=FastRCNNPredictor(trunk_channels, num_classes + 1),
            fg_iou_thresh=0.5,
            bg_iou_thresh=0.5,
            batch_size_per_image=num_regions,
            positive_fraction=0.25,
            bbox_reg_weights=None,
            score_thresh=0.05,
            nms_thresh=0.5,
            detections_per_img=100,
            mask_predictor=MaskRCNNPredictor(trunk_channels, _MASK_CHANNELS, num_classes + 1),
        )
        self.fg_bg_sampler = KeyedSampler(num_regions, 0.25)
        self._initialise()

    def _initialise(self) -> None:
        """As detectron2 begins: FastRCNNOutputLayers and MaskRCNNConvUpsampleHead."""
        nn.init.normal_(self.box_predictor.cls_score.weight, std=0.01)
        nn.init.normal_(self.box_predictor.bbox_pred.weight, std=0.001)
        nn.init.normal_(self.mask_predictor.mask_fcn_logits.weight, std=0.001)
        for layer in (*self.box_predictor.children(), *self.mask_predictor.children()):
            if getattr(layer, "bias", None) is not None:
                nn.init.zeros_(layer.bias)

    def set_keys(self, keys: list[int]) -> None:
        """Sets the seeds that the regions of the next batch's images are drawn by."""
        self.fg_bg_sampler.keys = keys

    def losses(
        self, features: Tensor, proposals: list[Tensor], targets: list[Target], trunk: Trunk
    ) -> dict[str, Tensor]:
        """Losses of class, box and mask over the drawn regions.

        Args:
            features: Maps (N, C, h, w).
            proposals: Boxes of each image in pixels, (n, 4).
            targets: Of each image true `boxes` (m, 4) in pixels, `labels` (m,) from 1, `masks` (m, H, W) uint8.
            trunk: Pooled maps (R, C, 14, 14) to maps (R, C', 7, 7).
        """
        regions, matched, labels, changes = self.select_training_samples(proposals, targets)
        maps = trunk(self.box_roi_pool(features, regions))
        scores, deltas = self._predict_boxes(maps)
        class_loss, box_loss = box_losses(scores, deltas, torch.cat(labels), torch.cat(changes))
        objects = [values > 0 for values in labels]
        logits = self.mask_predictor(maps[torch.cat(objects)]).float()
        truth = [
            mask_truth(target["masks"], region[chosen], match[chosen], logits.shape[-1])
            for target, region, match, chosen in zip(targets, regions, matched, objects, strict=True)
        ]
        classes = torch.cat([values[chosen] for values, chosen in zip(labels, objects, strict=True)])
        own = logits[torch.arange(len(classes), device=classes.device), classes]
        mask_loss = F.binary_cross_entropy_with_logits(own, torch.cat(truth))
        return {"loss_classifier": class_loss, "loss_box_reg": box_loss, "loss_mask": mask_loss}

    def detections(
        self, features: Tensor, proposals: list[Tensor], sizes: list[tuple[int, int]], trunk: Trunk
    ) -> list[Target]:
        """What is found in each image.

        Args:
            features: Maps (N, C, h, w).
            proposals: Boxes of each image in pixels, (n, 4).
            sizes: Height and width of each image without padding.
            trunk: As for `losses`.

        Returns:
            Of each image `boxes` (n, 4) in pixels, `labels` (n,) from 1, `scores` (n,), and `masks` (n, 1, 14, 14)
            within the boxes, in [0, 1]; at most 100, best first.
        """
        scores, deltas = self._predict_boxes(trunk(self.box_roi_pool(features, proposals)))
        boxes, confidences, labels = self.postprocess_detections(scores, deltas, proposals, sizes)
        # Masks are predicted within the boxes that were found, not within the proposals.
        logits = self.mask_predictor(trunk(self.box_roi_pool(features, boxes))).float()
        names = ("boxes", "labels", "scores", "masks")
        found = zip(boxes, labels, confidences, maskrcnn_inference(logits, labels), strict=True)
        return [dict(zip(names, values, strict=True)) for values in found]

    def _predict_boxes(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        scores, deltas = self.box_predictor(maps.mean(dim=(2, 3)))
        return scores.float(), deltas.float()


def box_losses(scores: Tensor, deltas: Tensor, labels: Tensor, changes: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the regions' classes, and L1 of the boxes of those on objects over the number of all.

    Args:
        scores: (R, K + 1), background first.
        deltas: Predicted changes of the regions for each class, (R, 4 (K + 1)).
        labels: Classes, 0 for background, (R,).
        changes: True changes of the regions, (R, 4).

    Source:
        detectron2, modeling/roi_heads/fast_rcnn.py, `FastRCNNOutputLayers.losses` with SMOOTH_L1_BETA 0.
    """
    places = torch.where(labels > 0)[0]
    own = deltas.view(len(deltas), -1, 4)[places, labels[places]]
    box_loss = F.l1_loss(own, changes[places], reduction="sum") / len(labels)
    return F.cross_entropy(scores, labels), box_loss


def mask_truth(masks: Tensor, boxes: Tensor, matched: Tensor, side: int) -> Tensor:
    """True masks within boxes.

    Args:
        masks: Of an image's objects, (m, H, W) uint8.
        boxes: Regions in pixels, (r, 4).
        matched: Index of each region's object, (r,).
        side: Of the result.

    Returns:
        0 or 1, float32 (r, side, side).

    Source:
        detectron2, structures/masks.py, `BitMasks.crop_and_resize`.
    """
    places = torch.cat([matched[:, None].to(boxes), boxes], dim=1)
    cut = roi_align(masks[:, None].to(boxes), places, (side, side), spatial_scale=1.0, sampling_ratio=0, aligned=True)
    return (cut[:, 0] >= 0.5).to(torch.float32)
