"""Localizer `classifier_cam`: class activation map of the predicted class (Zhou et al., 2016), which needs labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from objectaware.config.localize import Cost, Localizer
from objectaware.errors import InputError
from objectaware.localize.contracam import class_activation_map
from objectaware.localize.localizer import (
    Features,
    Group,
    Network,
    SoftMaps,
    activations_of,
    as_array,
    check_evaluation_mode,
    check_finite,
    check_images,
    without_content,
)
from objectaware.methods.checkpoint import load_classifier
from objectaware.model import ClassifierAddress


class ClassifierCAM(Localizer):
    """The supervised map with which ContraCAM is compared.

    Attributes:
        classifier: The folder of a linear evaluation on the same checkpoint, or a state dict.
        expansion: Resolution of a map's activations, 1, 2 or 4 times the network's.
        remove_negative_signals: Whether to apply the ReLU to α in eq. 2, as the published code does. The paper's
            equation does so only for ContraCAM.
    """

    name: Literal["classifier_cam"] = "classifier_cam"
    needs_classifier: ClassVar[bool] = True

    classifier: ClassifierAddress
    expansion: Literal[1, 2, 4] = 2
    remove_negative_signals: bool = False

    def build(self, network: Network) -> SoftMaps:
        """Open the network and the classifier, and return the function that finds soft maps."""
        features, linear = network.features(self.expansion), load_classifier(self.classifier)

        def find(group: Group) -> NDArray[np.float32]:
            images, remove = network.tensor(group.images), self.remove_negative_signals
            maps = classifier_cam(images, features, linear.weight, linear.bias, remove_negative_signals=remove)
            return as_array(maps)

        return find

    @property
    def cost(self) -> Cost:
        """Return the cost of one forward pass."""
        return Cost(1)


@torch.no_grad()
def classifier_cam(
    images: Tensor, features: Features, weight: Tensor, bias: Tensor, *, remove_negative_signals: bool = False
) -> Tensor:
    """Find the pixels in which a linear classifier on pooled features sees the class that it predicts.

    The function uses no labels. Where the head is a global average and a linear layer, the weights α of eq. 2 for the
    logit of class c are row c of the layer's weights, up to a positive factor. With another head they are the logit's
    gradient at the maps.

    Args:
        images: (N, 3, H, W), normalised as in training.
        features: images -> last spatial activation (N, C, h, w), alone or with its pooling, in evaluation mode. The
            network is supervised, or a contrastive one on whose pooled features the classifier was fitted.
        weight: Weights (K, C) of the classifier.
        bias: Biases (K,) of the classifier.
        remove_negative_signals: Whether to apply the ReLU to α. By default α keeps its negative values (paper, eq. 2
            without the inner ReLU). The published code removes them here, too.

    Returns:
        Soft masks (N, 1, H, W), float32 in [0, 1]; zeros for an image of one colour.

    Raises:
        InputError: Shapes are wrong, batch normalisation is in training mode, or features are not finite.
    """
    check_images(images)
    check_evaluation_mode("features", features)
    activations = activations_of(features, images)
    pooled = activations.pooled()
    if weight.ndim != 2 or weight.shape[1] != pooled.shape[1] or bias.shape != weight.shape[:1]:
        problem = f"does not fit a network of {pooled.shape[1]} features"
        remedy = "Give the classifier that was fitted to this network's features."
        raise InputError("classifier", f"weight {tuple(weight.shape)}, bias {tuple(bias.shape)}", problem, remedy)
    logits = pooled @ weight.T.to(pooled) + bias.to(pooled)
    predicted = weight.to(pooled)[logits.argmax(dim=1)]  # (N, D)
    if activations.pool is not None:
        predicted = _gradient(activations.maps, activations.pool, predicted)
    if remove_negative_signals:
        predicted = predicted.relu()
    cam = class_activation_map(activations.maps, predicted, (images.shape[2], images.shape[3]))
    cam = cam.masked_fill(without_content(images), 0.0)
    check_finite(cam)
    return cam


def _gradient(maps: Tensor, pool: Callable[[Tensor], Tensor], weight: Tensor) -> Tensor:
    """Return the gradient of each image's pooled features · weight (N, D) at its maps, averaged over positions.

    Shape:
        (N, C).
    """
    with torch.inference_mode(False), torch.enable_grad():
        leaf = maps.clone().requires_grad_()
        (gradient,) = torch.autograd.grad((pool(leaf) * weight.clone()).sum(), leaf)
    return gradient.mean(dim=(2, 3))
