"""Detectors that torchvision publishes, trained on COCO with labels: the paper's supervised baselines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torchvision.models.detection import FasterRCNN, FasterRCNN_ResNet50_FPN_Weights, MaskRCNN
from torchvision.models.detection._utils import overwrite_eps
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

from objectaware.detection.detect import Detector
from objectaware.detection.regions import Target
from objectaware.errors import InputError
from objectaware.methods.foreign import without_wrappers
from objectaware.methods.weights_file import load_weights

NUM_OUTPUTS = 91
"""Outputs of these networks: COCO's category numbers, some of which are not used, and background."""

LABELS: Mapping[str, int] = {
    name: label
    for label, name in enumerate(FasterRCNN_ResNet50_FPN_Weights.COCO_V1.meta["categories"])
    if name not in ("__background__", "N/A")
}
"""Label of each of COCO's 80 categories, by name."""

_EPSILON = 0.0  # of batch norm, which the published weights were trained with (pytorch/vision #2933)


def load_published(path: Path, *, short_side: int = 800, max_side: int = 1333, num_proposals: int = 1000) -> nn.Module:
    """Loads fasterrcnn_resnet50_fpn or maskrcnn_resnet50_fpn, told by its keys.

    Args:
        path: State dict: fasterrcnn_resnet50_fpn_coco-258fb6c6.pth or maskrcnn_resnet50_fpn_coco-bf2d0c1e.pth as
            torchvision publishes them, or one of the same form.
        short_side: Short side in pixels that images are resized to …
        max_side: … unless the long one would be longer than this.
        num_proposals: Proposals an image.

    Returns:
        torchvision's network in evaluation mode.

    Raises:
        InputError: The file cannot be read or holds another network.
    """
    if not path.is_file():
        raise InputError("published", str(path), "does not exist", "Give a file that torchvision publishes.")
    state = load_weights(path, field="published")
    if isinstance(state, Mapping):
        state = {without_wrappers(str(key)): value for key, value in state.items()}
    has_masks = isinstance(state, Mapping) and any(key.startswith("roi_heads.mask_") for key in state)
    backbone = resnet_fpn_backbone(backbone_name="resnet50", weights=None, trainable_layers=5)
    build = MaskRCNN if has_masks else FasterRCNN
    network: nn.Module = build(
        backbone,
        NUM_OUTPUTS,
        min_size=short_side,
        max_size=max_side,
        rpn_post_nms_top_n_test=num_proposals,
    )
    try:
        network.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        problem = f"is no {'maskrcnn' if has_masks else 'fasterrcnn'}_resnet50_fpn ({_first_reasons(error)})"
        remedy = "Give the state dict of torchvision's fasterrcnn_resnet50_fpn or maskrcnn_resnet50_fpn."
        raise InputError("published", str(path), problem, remedy) from error
    overwrite_eps(network, _EPSILON)
    return network.eval()


def published_detector(network: nn.Module, device: torch.device) -> Detector:
    """Makes a detector of a network of `load_published`, which resizes and normalises by itself."""

    @torch.inference_mode()
    def detect(image: NDArray[np.uint8]) -> Target:
        pixels: Tensor = torch.tensor(image).permute(2, 0, 1).to(device) / 255
        (found,) = network([pixels])
        return found

    return detect


def _first_reasons(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{' '.join(lines[1:3] or lines)[:200]}"
