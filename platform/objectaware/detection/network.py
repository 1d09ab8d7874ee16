"""Mask R-CNN on C4: a backbone's first stages as the map, its last stage as the trunk of the heads."""

from __future__ import annotations

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.detection.image_list import ImageList

from objectaware.detection.proposals import ProposalNetwork
from objectaware.detection.regions import RegionHeads, Target
from objectaware.methods.backbones import Backbone

STRIDE = 16
"""Pixels a unit of the map after the third stage, of every backbone."""


class MaskRCNN(nn.Module):
    """Finds objects, their classes and masks.

    Nothing is frozen, batch norm learns and is normalised by the batch, and another batch norm follows the last
    stage.

    Args:
        backbone: A ResNet; it becomes a part of this network.
        num_classes: Classes without background.
        num_regions: Regions an image that training draws.
        num_train_proposals: Proposals an image in training.
        num_test_proposals: Proposals an image in the test.

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
        self.backbone = backbone.as_resnet()
        self.extra_norm = nn.BatchNorm2d(backbone.num_features)
        self.proposals = ProposalNetwork(
            self.backbone.c4_channels, num_train_proposals=num_train_proposals, num_test_proposals=num_test_proposals
        )
        self.heads = RegionHeads(
            stride=STRIDE, trunk_channels=backbone.num_features, num_classes=num_classes, num_regions=num_regions
        )

    def forward(self, images: list[Tensor], targets: list[Target] | None = None) -> dict[str, Tensor] | list[Target]:
        """Losses in training, else what is found.

        Args:
            images: Normalised, (3, H, W) each, of any sizes.
            targets: In training, of each image `boxes` (m, 4) in pixels, `labels` (m,) from 1, `masks` (m, H, W)
                uint8, m at least 1, and `key`, the seed that its anchors and regions are drawn by.

        Returns:
            Five losses by name, or `RegionHeads.detections`.
        """
        batch = padded(images)
        features = self.backbone.forward_c4(batch.tensors).float()  # boxes need 32 bits
        if targets is not None:
            keys = [int(target["key"]) for target in targets]
            self.proposals.set_keys(keys)
            self.heads.set_keys([key + 1 for key in keys])
        found, losses = self.proposals(batch, OrderedDict(map=features), targets)
        if targets is None:
            return self.heads.detections(features, found, batch.image_sizes, self._trunk)
        return {**losses, **self.heads.losses(features, found, targets, self._trunk)}

    def _trunk(self, maps: Tensor) -> Tensor:
        return self.extra_norm(self.backbone.layer4(maps))


def padded(images: list[Tensor]) -> ImageList:
    """Puts images of different sizes into one batch, zeros to their right and below.

    Sides are multiples of the stride, so that anchors lie where the map's units look.

    Args:
        images: (3, H, W) each.
    """
    height, width = (-(-max(image.shape[axis] for image in images) // STRIDE) * STRIDE for axis in (1, 2))
    tensors = torch.stack([F.pad(image, (0, width - image.shape[2], 0, height - image.shape[1])) for image in images])
    sizes = [(image.shape[1], image.shape[2]) for image in images]
    return ImageList(tensors.contiguous(memory_format=torch.channels_last), sizes)
