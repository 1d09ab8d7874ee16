"""Supervised training: cross-entropy on the images' classes. The paper's classifier CAM needs such a network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from objectaware.config.variants import MethodConfig
from objectaware.methods.backbones import build_backbone
from objectaware.methods.method import Method, Mixing


class SupervisedConfig(MethodConfig):
    """Cross-entropy on the images' classes, of both views."""

    title: ClassVar = "supervised"
    needs_labels: ClassVar = True

    name: Literal["supervised"] = "supervised"

    def build(self, backbone: str, *, num_classes: int) -> Supervised:
        """Build the method."""
        return Supervised(backbone, num_classes=num_classes)


class Supervised(Method):
    """A backbone and a linear classifier on its pooled features.

    Each of the two views is a training image with the same class (Hoffer et al. 2020, with two repetitions). The views
    are decoded and cut in any case, and every policy has the same meaning as with other methods.

    Args:
        backbone: Name of the backbone.
        num_classes: Number of classes.

    Shape:
        Two views (N, 3, H, W) each and class indices (N,) to the loss, a scalar.
    """

    def __init__(self, backbone: str, *, num_classes: int) -> None:
        super().__init__()
        self.backbone = build_backbone(backbone)
        self.classifier = nn.Linear(self.backbone.num_features, num_classes)

    @property
    def chance_loss(self) -> float:
        """Return the loss of a network that gives all classes the same score: the logarithm of their number."""
        return math.log(self.classifier.out_features)

    def forward(self, views: Sequence[Tensor], *, labels: Tensor | None = None, mixing: Mixing | None = None) -> Tensor:
        """Compute the cross-entropy, averaged over all views."""
        assert labels is not None, "the configuration needs labels"
        assert mixing is None, "the configuration refuses mixtures"
        logits = self.classifier(self.backbone(torch.cat([*views])))
        # As in `normalised`, compute in 32 bits or more.
        logits = logits if logits.dtype == torch.float64 else logits.float()
        classes = labels.repeat(len(views))
        self.top1_accuracy = (logits.detach().argmax(dim=1) == classes).float().mean() * 100
        return F.cross_entropy(logits, classes)
