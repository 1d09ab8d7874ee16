"""Mask R-CNN on C4: a backbone's first stages as the map, its last stage as the trunk of the heads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.mask_rcnn import MaskRCNNPredictor
from torchvision.models.detection.roi_heads import RoIHeads, maskrcnn_inference
from torchvision.models.detection.rpn import RegionProposalNetwork, RPNHead
from torchvision.ops import RoIAlign, roi_align

from objectaware.config.variants import BACKBONE_NAMES
from objectaware.errors import InputError
from objectaware.methods.backbones import Backbone, ResidualBackbone

Target = dict[str, Tensor]
Trunk = Callable[[Tensor], Tensor]

STRIDE = 16
"""Pixels per unit of the map after the third stage, the same for every backbone."""

ANCHOR_SIZES = (32, 64, 128, 256, 512)
ASPECT_RATIOS = (0.5, 1.0, 2.0)
_NUM_ANCHORS_DRAWN = 256
_NUM_BEFORE_SUPPRESSION = {"training": 12_000, "testing": 6_000}
_POOLED_SIDE = 14
_MASK_CHANNELS = 256


class KeyedSampler:
    """Draw positives and negatives of each image with a generator seeded by the image's key.

    torchvision's sampler draws from the process's generator, so that a result would depend on how many images the
    worker has seen. This class takes its place (`BalancedPositiveNegativeSampler` in
    `torchvision.models.detection._utils`).

    Args:
        num_samples: Samples per image, at most.
        positive_fraction: Share of positives, at most; negatives fill the rest.

    Attributes:
        keys: Seed of each image of the next batch.

    Source:
        detectron2, modeling/sampling.py.
    """

    def __init__(self, num_samples: int, positive_fraction: float) -> None:
        self.keys: Sequence[int] = ()
        self._num_samples = num_samples
        self._num_positive = int(num_samples * positive_fraction)

    def __call__(self, labels: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Draw the samples of each image of a batch.

        Args:
            labels: Labels per image, (n,): from 1 on positive, 0 negative, below 0 neither.

        Returns:
            Per image, masks of the drawn positives and of the drawn negatives, uint8 (n,) each.
        """
        positives, negatives = [], []
        for values, key in zip(labels, self.keys, strict=True):
            generator = torch.Generator().manual_seed(key)
            positives.append(_draw(values >= 1, self._num_positive, generator))
            negatives.append(_draw(values == 0, self._num_samples - int(positives[-1].sum()), generator))
        return positives, negatives


def _draw(candidates: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Return a mask of up to `number` of the candidates (n,), drawn on the CPU so that every device draws the same."""
    places = torch.where(candidates)[0]
    drawn = torch.randperm(len(places), generator=generator)[:number].to(places.device)
    chosen = torch.zeros_like(candidates, dtype=torch.uint8)
    chosen[places[drawn]] = 1
    return chosen


class _FullPrecisionHead(RPNHead):  # type: ignore[misc]  # torchvision has no types
    """torchvision's head, whose outputs are in 32 bits also under autocast: a box in bfloat16 is off by pixels."""

    def forward(self, x: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        logits, deltas = super().forward(x)
        return [values.float() for values in logits], [values.float() for values in deltas]


class ProposalNetwork(RegionProposalNetwork):  # type: ignore[misc]  # torchvision has no types
    """torchvision's, with detectron2's losses and a sampler of its own.

    Args:
        in_channels: Channels of the map.
        num_train_proposals: Proposals per image kept in training.
        num_test_proposals: Proposals per image kept in the test.

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
        self, objectness: Tensor, pred_bbox_deltas: Tensor, labels: list[Tensor], regression_targets: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy of objectness and the L1 loss of the boxes over the drawn anchors.

        Both sums are divided by 256 per image.

        Args:
            objectness: Logits of all anchors of all images, (A, 1).
            pred_bbox_deltas: Predicted changes of the anchors, (A, 4).
            labels: Labels per image, (a,): 1 object, 0 background, -1 neither.
            regression_targets: True changes per image, (a, 4).

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


class RegionHeads(RoIHeads):  # type: ignore[misc]  # torchvision has no types
    """Box and mask predictions from the trunk's maps of the regions.

    torchvision's heads pool and compute features for boxes and masks separately. Here a region goes through the trunk
    once, because the trunk is a whole stage of the backbone whose batch norm learns. Boxes and masks are predicted for
    each class.

    Args:
        trunk_channels: Channels of the trunk's output.
        num_classes: Classes without background.
        num_regions: Regions per image that training draws, a quarter of them on objects.

    Source:
        detectron2, modeling/roi_heads/roi_heads.py, `Res5ROIHeads`, and its defaults (ROIAlignV2, L1 loss of boxes,
        a deconvolution before the masks).
    """

    def __init__(self, trunk_channels: int, *, num_classes: int, num_regions: int) -> None:
        super().__init__(
            box_roi_pool=RoIAlign(_POOLED_SIDE, 1 / STRIDE, sampling_ratio=0, aligned=True),
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
        # As detectron2 does: FastRCNNOutputLayers and MaskRCNNConvUpsampleHead.
        nn.init.normal_(self.box_predictor.cls_score.weight, std=0.01)
        nn.init.normal_(self.box_predictor.bbox_pred.weight, std=0.001)
        nn.init.normal_(self.mask_predictor.mask_fcn_logits.weight, std=0.001)
        for layer in (*self.box_predictor.children(), *self.mask_predictor.children()):
            if getattr(layer, "bias", None) is not None:
                nn.init.zeros_(layer.bias)

    def losses(
        self, features: Tensor, proposals: list[Tensor], targets: list[Target], trunk: Trunk
    ) -> dict[str, Tensor]:
        """Return the losses of class, box and mask over the drawn regions.

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
        """Return the objects found in each image.

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
    """Return the cross-entropy of the regions' classes, and the L1 loss of the boxes of regions on objects.

    The L1 loss is divided by the number of all regions.

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
    """Cut the true masks out at boxes.

    Args:
        masks: Masks of an image's objects, (m, H, W) uint8.
        boxes: Regions in pixels, (r, 4).
        matched: Index of each region's object, (r,).
        side: Side of the result.

    Returns:
        0 or 1, float32 (r, side, side).

    Source:
        detectron2, structures/masks.py, `BitMasks.crop_and_resize`.
    """
    places = torch.cat([matched[:, None].to(boxes), boxes], dim=1)
    cut = roi_align(masks[:, None].to(boxes), places, (side, side), spatial_scale=1.0, sampling_ratio=0, aligned=True)
    return (cut[:, 0] >= 0.5).to(torch.float32)


def require_resnet(backbone: Backbone) -> None:
    """Refuse a network without the four stages of a ResNet, which `MaskRCNN` divides.

    A ResNet of timm is refused, too: images are normalised as for torchvision's, and many of timm's are not.

    Raises:
        InputError: The network is not such a ResNet.
    """
    if not isinstance(backbone, ResidualBackbone):
        problem = "does not have the four stages of a ResNet, which are needed"
        remedy = f"Give a checkpoint of {', '.join(BACKBONE_NAMES)}."
        raise InputError("backbone", backbone.name, problem, remedy)


class MaskRCNN(nn.Module):
    """Find objects, their classes and masks.

    Nothing is frozen, batch norm learns and is normalised by the batch, and another batch norm follows the last
    stage.

    Args:
        backbone: A network with the stages of a ResNet; it becomes a part of this network.
        num_classes: Classes without background.
        num_regions: Regions per image that training draws.
        num_train_proposals: Proposals per image in training.
        num_test_proposals: Proposals per image in the test.

    Raises:
        InputError: The backbone is not a ResNet.

    Source:
        facebookresearch/moco, detection/train_net.py (`Res5ROIHeadsExtraNorm`) and configs/Base-RCNN-C4-BN.yaml.
    """

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int,
        *,
        num_regions: int = 512,
        num_train_proposals: int = 2000,
        num_test_proposals: int = 1000,
    ) -> None:
        super().__init__()
        require_resnet(backbone)
        self.backbone = backbone
        self.extra_norm = nn.BatchNorm2d(backbone.num_features)
        trunk_layers = backbone.stages()[-1].modules()
        map_channels = next(layer for layer in trunk_layers if isinstance(layer, nn.Conv2d)).in_channels
        self.proposals = ProposalNetwork(
            map_channels, num_train_proposals=num_train_proposals, num_test_proposals=num_test_proposals
        )
        self.heads = RegionHeads(backbone.num_features, num_classes=num_classes, num_regions=num_regions)

    def forward(self, images: list[Tensor], targets: list[Target] | None = None) -> dict[str, Tensor] | list[Target]:
        """Return losses in training, else the objects found.

        Args:
            images: Normalised, (3, H, W) each, of any sizes.
            targets: In training, of each image `boxes` (m, 4) in pixels, `labels` (m,) from 1, `masks` (m, H, W)
                uint8, m at least 1, and `key`, the seed that its anchors and regions are drawn by.

        Returns:
            Five losses by name, or `RegionHeads.detections`.
        """
        batch = padded(images)
        *first_stages, _ = self.backbone.stages()
        features = nn.Sequential(*first_stages)(batch.tensors).float()  # boxes need 32 bits
        if targets is not None:
            keys = [int(target["key"]) for target in targets]
            self.proposals.fg_bg_sampler.keys = keys
            self.heads.fg_bg_sampler.keys = [key + 1 for key in keys]
        found, losses = self.proposals(batch, OrderedDict(map=features), targets)
        if targets is None:
            return self.heads.detections(features, found, batch.image_sizes, self._trunk)
        return {**losses, **self.heads.losses(features, found, targets, self._trunk)}

    def _trunk(self, maps: Tensor) -> Tensor:
        return self.extra_norm(self.backbone.stages()[-1](maps))


def padded(images: list[Tensor]) -> ImageList:
    """Put images of different sizes into one batch, zeros to their right and below.

    Sides are multiples of the stride, so that anchors are centred on the map's units.

    Args:
        images: (3, H, W) each.
    """
    height, width = (-(-max(image.shape[axis] for image in images) // STRIDE) * STRIDE for axis in (1, 2))
    tensors = torch.stack([F.pad(image, (0, width - image.shape[2], 0, height - image.shape[1])) for image in images])
    sizes = [(image.shape[1], image.shape[2]) for image in images]
    return ImageList(tensors.contiguous(memory_format=torch.channels_last), sizes)
