"""Networks of timm as backbones: from a step of MoCo to boxes, features and files for others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

from objectaware.config import LocalizeConfig, LocalizeExecution, PretrainConfig
from objectaware.detection.detect import export_detectron2
from objectaware.detection.network import MaskRCNN
from objectaware.errors import InputError
from objectaware.evaluate.features import compute_features, knn_accuracy
from objectaware.evaluate.linear import linear_evaluation
from objectaware.localize import contracam, expand_resolution
from objectaware.localize.classifier_cam import classifier_cam
from objectaware.localize.localizer import Group, Network
from objectaware.methods.backbones import Backbone, build_backbone, check_image_size
from objectaware.methods.checkpoint import backbone_weights, export_backbone, load_encoder
from objectaware.methods.moco import MoCo
from objectaware.methods.workers import AllReduceBatchNorm, _convert, split_batch_norm
from objectaware.training.session import LocalSession
from processes import printed_by
from training_fixtures import Pictures, make_trainer

SIZE = 64
CPU = torch.device("cpu")

NETWORKS = {
    "timm/test_resnet": (2, 256),  # the map's side at 64 pixels, its channels
    "timm/test_convnext": (2, 64),
    "timm/test_vit": (4, 64),  # pools the class token
    "timm/test_vit2": (4, 64),
    "timm/test_efficientnet": (2, 48),
    "timm/vit_tiny_patch16_224": (4, 192),
    "timm/eva02_tiny_patch14_224": (4, 192),
}


def _build(name: str) -> Backbone:
    torch.manual_seed(0)
    return build_backbone(name).eval()


def _images(number: int = 2, size: int = SIZE) -> Tensor:
    return torch.randn(number, 3, size, size, generator=torch.Generator().manual_seed(1))


def _size(name: str) -> int:
    return 56 if "patch14" in name else SIZE


@pytest.mark.parametrize("name", NETWORKS)
def test_maps_pooled_are_timms_own_features(name: str) -> None:
    backbone, images = _build(name), _images(size=_size(name))
    side, _ = NETWORKS[name]
    with torch.no_grad():
        activations = backbone.activations(images)
        expected = (
            timm.create_model(name.removeprefix("timm/"), num_classes=0, dynamic_img_size=True)
            if ("vit" in name or "eva" in name)
            else timm.create_model(name.removeprefix("timm/"), num_classes=0)
        )
        expected.load_state_dict(backbone.weights())
        pooled = expected.eval()(images)
        assert activations.maps.shape[2:] == (side, side)
        assert backbone.forward_features(images).shape == activations.maps.shape
        assert pooled.shape == (2, backbone.num_features)
        torch.testing.assert_close(backbone(images), pooled)
        torch.testing.assert_close(activations.pooled(), pooled, atol=1e-4, rtol=1e-4)


def test_maps_of_a_class_token_have_a_gradient_everywhere() -> None:
    """After the last block, only the class token's row of the last layers counts: the patches' maps would have none."""
    backbone = _build("timm/vit_tiny_patch16_224")
    activations = backbone.activations(_images())
    maps = activations.maps.detach().requires_grad_()
    assert activations.pool is not None
    (gradient,) = torch.autograd.grad(activations.pool(maps).square().sum(), maps)
    assert (gradient.abs().sum(dim=1) > 0).all()


@pytest.mark.parametrize("name", ["timm/test_vit", "timm/test_convnext"])
def test_contracam_s_first_map_is_the_gradient_of_the_score(name: str) -> None:
    """By brute force: ContraCAM of eq. 2 with the gradient that autograd gives through timm's own pooling."""
    backbone, images = _build(name), _images(3)
    torch.manual_seed(1)
    projector = nn.Linear(backbone.num_features, 8)
    found = contracam(images, backbone.activations, projector, num_iterations=1)
    activations = backbone.activations(images)
    maps = activations.maps.detach().requires_grad_()
    assert activations.pool is not None
    query = F.normalize(projector(activations.pool(maps)), dim=1)
    key = query.detach()
    similarities = (query @ key.T).masked_fill(torch.eye(3, dtype=torch.bool), 0.0)
    score = (query * key).sum(dim=1) - torch.logsumexp(similarities, dim=1)
    (gradient,) = torch.autograd.grad(score.sum(), maps)
    cam = torch.einsum("nchw,nc->nhw", maps.detach(), gradient.mean(dim=(2, 3)).relu()).relu()[:, None]
    cam = F.interpolate(cam, size=(SIZE, SIZE), mode="bicubic")
    low, high = cam.amin(dim=(2, 3), keepdim=True), cam.amax(dim=(2, 3), keepdim=True)
    torch.testing.assert_close(found, ((cam - low) / (high - low)).clamp(0, 1), atol=1e-3, rtol=1e-3)
    with torch.inference_mode():
        inside = contracam(images.clone(), backbone.activations, projector, num_iterations=1)
    torch.testing.assert_close(inside.clone(), found)


def test_classifier_cam_takes_the_gradient_where_pooling_is_no_average() -> None:
    backbone, images = _build("timm/test_vit"), _images(3)
    weight, bias = torch.randn(4, backbone.num_features, generator=torch.Generator().manual_seed(2)), torch.zeros(4)
    found = classifier_cam(images, backbone.activations, weight, bias)
    activations = backbone.activations(images)
    maps = activations.maps.detach().requires_grad_()
    assert activations.pool is not None
    logits = activations.pool(maps) @ weight.T
    (gradient,) = torch.autograd.grad(logits.amax(dim=1).sum(), maps)
    cam = torch.einsum("nchw,nc->nhw", maps.detach(), gradient.mean(dim=(2, 3))).relu()[:, None]
    cam = F.interpolate(cam, size=(SIZE, SIZE), mode="bicubic")
    low, high = cam.amin(dim=(2, 3), keepdim=True), cam.amax(dim=(2, 3), keepdim=True)
    torch.testing.assert_close(found, ((cam - low) / (high - low)).clamp(0, 1), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", ["timm/test_resnet", "timm/test_vit", "timm/test_convnext"])
@pytest.mark.parametrize("localizer", ["contracam", "smoothgrad"])
def test_a_trained_network_is_localized_with_evaluated_and_exported(
    trained: Callable[[str], Path], name: str, localizer: str, tmp_path: Path
) -> None:
    checkpoint = trained(name)
    encoder = load_encoder(checkpoint)
    assert encoder.backbone.name == encoder.config["backbone"] == name
    features = compute_features(
        encoder.backbone, Pictures(30), range(30), size=SIZE, center_crop=False, device=CPU, num_threads=1
    ).values
    labels = torch.arange(30) % 3
    assert features.shape == (30, encoder.backbone.num_features)
    assert 0 <= knn_accuracy(features[3:], labels[3:], features[:3], labels[:3]) <= 100
    linear = linear_evaluation(features, labels, num_values=3)
    assert linear.model.weight.shape == (3, encoder.backbone.num_features)

    fields = {
        "data": {"root": str(tmp_path)},
        "localizer": {
            "name": localizer,
            **({"expansion": 1, "num_iterations": 2} if localizer == "contracam" else {"num_gradients": 2}),
        },
        "checkpoint": str(checkpoint),
        "image_size": SIZE,
        "execution": LocalizeExecution(num_compute_threads=1, use_gpu=False),
    }
    masks = _localized(LocalizeConfig.model_validate(fields))
    assert masks.shape == (4, SIZE, SIZE)
    assert 0 <= masks.min() < masks.max() == 1

    assert export_backbone(str(checkpoint), tmp_path / "backbone.safetensors") == name
    network = timm.create_model(name.removeprefix("timm/"), num_classes=0)
    network.load_state_dict(load_file(tmp_path / "backbone.safetensors"), strict=True)
    again = load_encoder(tmp_path / "backbone.safetensors").backbone
    images = _images()
    with torch.no_grad():
        torch.testing.assert_close(again(images), encoder.backbone(images))
    assert load_file(checkpoint / "backbone.safetensors").keys() == network.state_dict().keys()


def _localized(config: LocalizeConfig) -> NDArray[np.float32]:
    pictures = np.random.default_rng(1).integers(0, 256, (4, SIZE, SIZE, 3), dtype=np.uint8)
    pictures[:, 8:30, 10:40] //= 4
    find = config.localizer.build(Network(config.checkpoint, torch.device("cpu")))
    found: NDArray[np.float32] = find(Group(pictures, pictures[:0], np.zeros((4, 0), dtype=np.bool_)))
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Trains a network by MoCo for a step, and gives its checkpoint."""
    folders: dict[str, Path] = {}

    def train(name: str) -> Path:
        if name not in folders:
            torch.manual_seed(0)
            method = MoCo(name, queue_size=16)
            before = {key: value.clone() for key, value in method.backbone.weights().items()}
            folder = tmp_path_factory.mktemp("training")
            trainer = make_trainer(method, LocalSession(folder), num_epochs=1, num_pictures=8, batch_size=8, size=SIZE)
            trainer.run()
            after = method.backbone.weights()
            assert any(not torch.equal(value, before[key]) for key, value in after.items())
            folders[name] = folder / "checkpoint"
        return folders[name]

    return train


def test_images_are_normalised_by_the_networks_mean() -> None:
    """timm's first vision transformers were trained on values from −1 to 1."""
    seen: list[Tensor] = []
    backbone = _build("timm/vit_tiny_patch16_224")
    assert backbone.mean == backbone.std == (0.5, 0.5, 0.5)
    backbone.register_forward_pre_hook(lambda _, images: seen.append(images[0]))
    white = Pictures(1)
    white._pictures = [np.full((SIZE, SIZE, 3), 255, dtype=np.uint8)]
    compute_features(backbone, white, [0], size=SIZE, center_crop=False, device=CPU, num_threads=1)
    torch.testing.assert_close(seen[0], torch.ones(1, 3, SIZE, SIZE))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timm/vit_tyni_patch16_224", "no such network.*timm/vit_tiny_patch16_224"),
        ("timm/vit_tiny_patch16_224.augreg", "no such tag.*timm/vit_tiny_patch16_224.augreg_in21k"),
        ("timm/hf-hub:timm/vit_tiny_patch16_224", "no such network"),
        ("timm/", "is not known"),
        ("torchvision/resnet18", "is not known"),
        ("resnet_18", "Did you mean resnet18"),
    ],
)
def test_unknown_networks_are_refused_with_the_closest_names(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_backbone(name)
    with pytest.raises(ValueError, match=message):
        PretrainConfig.model_validate({"data": {"root": "photos"}, "backbone": name})


def test_a_driver_imports_no_library_of_networks() -> None:
    """Each would cost a driver, and each trial of a sweep, seconds and 170 MB; torchvision imports a compiler."""
    program = (
        "import sys\nfrom objectaware.config import PretrainConfig\n"
        "PretrainConfig.model_validate({'data': {'root': 'photos'}, 'backbone': 'resnet50'})\n"
        "import objectaware.stages.localize, objectaware.stages.pretrain, objectaware.studies.sweep\n"
        "print({'timm', 'torchvision', 'torch._dynamo'} & set(sys.modules))"
    )
    assert printed_by(program) == "set()"


def test_expansion_is_for_resnets() -> None:
    expanded = expand_resolution(_build("timm/resnet18"), 2)
    with torch.no_grad():
        assert expanded.forward_features(_images()).shape[2:] == (4, 4)
    for name in ("timm/test_vit", "timm/test_convnext", "timm/test_resnet"):  # the last shrinks by pooling, too
        with pytest.raises(InputError, match=rf"backbone = {name}: .*Use expansion: 1"):
            expand_resolution(_build(name), 2)
        assert expand_resolution(_build(name), 1).forward_features(_images()).ndim == 4


def test_detection_is_for_resnets(trained: Callable[[str], Path], tmp_path: Path) -> None:
    # Images are normalised as for torchvision's networks. A ResNet of timm may need others.
    for name in ("timm/test_vit", "timm/resnet18"):
        with pytest.raises(InputError, match=f"backbone = {name}: does not have the four stages"):
            MaskRCNN(_build(name), 3)
    with pytest.raises(InputError, match="is not a ResNet with torchvision's names"):
        export_detectron2(str(trained("timm/test_vit")), tmp_path / "backbone.pkl")


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("timm/vit_tiny_patch16_224", 100, "100 × 100: is not a multiple of 16.* Give 96"),
        ("timm/cait_xxs24_224", 128, "takes only images of 224 × 224 pixels. Give 224"),
    ],
)
def test_sizes_that_a_network_does_not_take_are_refused(name: str, size: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_image_size(name, size)
    for known in ("resnet18", "timm/test_convnext"):
        check_image_size(known, size)


def test_networks_without_maps_are_refused_for_those_alone() -> None:
    backbone, images = _build("timm/crossvit_tiny_240"), _images(1, 240)
    with pytest.raises(InputError, match="gives no maps to find objects in"):
        backbone.activations(images)
    with torch.no_grad():
        assert backbone(images).shape == (1, backbone.num_features)


@pytest.mark.parametrize("kind", ["of all workers", "of parts"])
def test_activations_inside_batch_norms_outlive_their_replacement(kind: str) -> None:
    """timm's batch norms hold their activation: a replacement without it would be another network."""
    network = _build("timm/test_efficientnet")
    images = _images(4)
    with torch.no_grad():
        expected = network(images)
        names = list(network.state_dict())
        replaced = _convert(network) if kind == "of all workers" else split_batch_norm(network, 2).eval()
        assert list(replaced.state_dict()) == names
        norm = next(layer for layer in replaced.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm))
        assert isinstance(norm, AllReduceBatchNorm) == (kind == "of all workers")
        torch.testing.assert_close(replaced.eval()(images), expected)


def test_weights_are_stored_in_plain_order() -> None:
    weights = backbone_weights(_build("timm/test_convnext").to(memory_format=torch.channels_last))
    assert all(value.is_contiguous() for value in weights.values())
