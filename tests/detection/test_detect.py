"""torchvision's published detectors: as detectors, and their backbones."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops.misc import FrozenBatchNorm2d

from objectaware.detection.detect import load_published, published_detector
from objectaware.errors import InputError
from objectaware.methods.checkpoint import load_encoder
from objectaware.methods.weights import find_weights


@pytest.fixture(scope="module")
def mask_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mask R-CNN as torchvision publishes it, with variances so small that an epsilon shows."""
    path = tmp_path_factory.mktemp("published") / "maskrcnn.pth"
    torch.manual_seed(0)
    network = MaskRCNN(resnet_fpn_backbone(backbone_name="resnet50", weights=None, trainable_layers=5), 91)
    for module in network.modules():
        if isinstance(module, FrozenBatchNorm2d):
            module.running_var.uniform_(1e-5, 3e-5)
            module.weight.fill_(4e-3)
            module.running_mean.normal_(0, 1e-3)
    torch.save(OrderedDict(network.state_dict()), path)
    return path


def test_masks_are_told_by_the_keys(mask_file: Path, tmp_path: Path) -> None:
    state = torch.load(mask_file, weights_only=True)
    without_masks = OrderedDict((name, value) for name, value in state.items() if "roi_heads.mask_" not in name)
    torch.save(without_masks, tmp_path / "fasterrcnn.pth")
    assert not isinstance(load_published(tmp_path / "fasterrcnn.pth"), MaskRCNN)
    network = load_published(mask_file, short_side=64, max_side=96, num_proposals=7)
    assert isinstance(network, MaskRCNN)
    assert not network.training
    assert {module.eps for module in network.modules() if isinstance(module, FrozenBatchNorm2d)} == {0.0}
    network.roi_heads.score_thresh = 0.0
    found = published_detector(network, torch.device("cpu"))(np.full((48, 60, 3), 120, dtype=np.uint8))
    assert found["masks"].shape == (len(found["boxes"]), 1, 48, 60)


def test_its_backbone_is_read_as_a_checkpoint_and_gives_the_same_features(mask_file: Path) -> None:
    encoder = load_encoder(mask_file)
    assert encoder.config == {"backbone": "resnet50"}
    assert any("torchvision's detection" in notice for notice in encoder.notices)
    images = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    body: nn.Module = load_published(mask_file).backbone.body
    with torch.no_grad():
        expected: Tensor = body(images)["3"]
        found = encoder.backbone.forward_features(images)
    # With the usual epsilon added to such variances, features would be off by a fifth a layer.
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max()))


def test_batch_norms_that_are_not_frozen_keep_their_variances() -> None:
    state = {
        "backbone.body.layer1.0.conv1.weight": torch.zeros(1),
        "backbone.body.layer1.0.bn1.running_var": torch.ones(1),
    }
    frozen = find_weights(state, "file")
    trained = find_weights({**state, "backbone.body.layer1.0.bn1.num_batches_tracked": torch.tensor(3)}, "file")
    name = "layer1.0.bn1.running_var"
    assert trained.backbone[name].item() == 1
    assert frozen.backbone[name].item() == pytest.approx(1 - 1e-5, abs=1e-7)


def test_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_published(tmp_path / "missing.pth")
    torch.save({"fc.weight": torch.zeros(2)}, tmp_path / "other.pth")
    with pytest.raises(InputError, match="is not a fasterrcnn_resnet50_fpn") as refusal:
        load_published(tmp_path / "other.pth")
    assert "\n" not in str(refusal.value)
