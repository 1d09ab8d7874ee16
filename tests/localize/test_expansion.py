from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torchvision.models import resnet18, resnet50

from objectaware.errors import InputError
from objectaware.localize import expand_resolution


def _strided_convolutions(network: nn.Module) -> set[str]:
    return {name for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d) and layer.stride != (1, 1)}


@pytest.mark.parametrize("expansion", [1, 2, 4])
def test_feature_map_of_the_reference_network_grows(reference: Any, expansion: int) -> None:
    features = expand_resolution(reference.encoder, expansion)(reference.images)
    assert features.shape == tuple(reference.arrays[f"feature_shape_expand{expansion}"])


@pytest.mark.parametrize(
    ("factor", "side", "changed"),
    [
        (1, 7, set()),
        (2, 14, {"layer4.0.conv1", "layer4.0.downsample.0"}),
        (4, 28, {"layer4.0.conv1", "layer4.0.downsample.0", "layer3.0.conv1", "layer3.0.downsample.0"}),
    ],
)
def test_resnet18_grows_by_the_first_convolution_and_the_shortcut(factor: int, side: int, changed: set[str]) -> None:
    network = resnet18(weights=None).eval()
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    expanded = expand_resolution(network, factor)
    assert _strided_convolutions(network) - _strided_convolutions(expanded) == changed
    trunk = nn.Sequential(*list(expanded.children())[:-2])
    with torch.no_grad():
        assert trunk(torch.zeros(1, 3, 224, 224)).shape == (1, 512, side, side)
    assert all(torch.equal(tensor, state[name]) for name, tensor in expanded.state_dict().items())


def test_resnet50_changes_the_second_convolution_of_its_bottleneck() -> None:
    network = resnet50(weights=None)
    changed = _strided_convolutions(network) - _strided_convolutions(expand_resolution(network, 2))
    assert changed == {"layer4.0.conv2", "layer4.0.downsample.0"}


def test_the_given_network_is_left_alone_and_shares_nothing(reference: Any) -> None:
    before = _strided_convolutions(reference.encoder)
    expanded = expand_resolution(reference.encoder, 4)
    assert _strided_convolutions(reference.encoder) == before
    shared = {p.data_ptr() for p in expanded.parameters()} & {p.data_ptr() for p in reference.encoder.parameters()}
    assert not shared


@pytest.mark.parametrize("factor", [0, 3, 8])
def test_other_factors_are_refused(reference: Any, factor: int) -> None:
    with pytest.raises(InputError, match="factor"):
        expand_resolution(reference.encoder, factor)


def test_networks_without_the_stages_or_their_stride_are_refused(reference: Any) -> None:
    with pytest.raises(InputError, match="layer4"):
        expand_resolution(nn.Sequential(nn.Conv2d(3, 4, 1)), 2)
    expanded = expand_resolution(reference.encoder, 2)
    with pytest.raises(InputError, match="does not halve"):
        expand_resolution(expanded, 2)
    pooled = expand_resolution(reference.encoder, 1)
    pooled.layer4[0].downsample.add_module("pool", nn.AvgPool2d(2))
    with pytest.raises(InputError, match="does not halve"):
        expand_resolution(pooled, 2)
