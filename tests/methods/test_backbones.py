import pytest
import timm
import torch
import torchvision

from objectaware.config.variants import BACKBONE_NAMES
from objectaware.errors import InputError
from objectaware.methods.backbones import build_backbone
from objectaware.methods.checkpoint import backbone_weights


@pytest.mark.parametrize("name", BACKBONE_NAMES)
def test_pooled_features_are_the_mean_of_the_map(name: str) -> None:
    backbone = build_backbone(name).eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        activations = backbone.forward_features(images)
        assert activations.shape == (2, backbone.num_features, 64 // backbone.stride, 64 // backbone.stride)
        assert activations.min() >= 0
        torch.testing.assert_close(backbone(images), activations.mean(dim=(2, 3)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_weights_load_into_torchvision_and_timm(name: str) -> None:
    weights = backbone_weights(build_backbone(name))
    for network in (torchvision.models.get_model(name), timm.create_model(name)):
        loaded = network.load_state_dict(weights, strict=False)
        assert sorted(loaded.missing_keys) == ["fc.bias", "fc.weight"]
        assert loaded.unexpected_keys == []


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="resnet50"):
        build_backbone("vgg16")
