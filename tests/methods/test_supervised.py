import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from objectaware.config import DataConfig, PretrainConfig
from objectaware.errors import InputError
from objectaware.localize.classifier_cam import classifier_cam
from objectaware.methods.checkpoint import load_encoder, save_checkpoint
from objectaware.methods.classifier import load_classifier
from objectaware.methods.supervised import Supervised
from objectaware.training.pretraining import run_pretraining
from objectaware.training.session import LocalSession


@pytest.fixture
def method() -> Supervised:
    torch.manual_seed(0)
    return Supervised("resnet10_narrow", num_classes=5)


def _views() -> torch.Tensor:
    return torch.randn(2, 4, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_loss_is_the_mean_cross_entropy_of_both_views(method: Supervised) -> None:
    method.eval()
    view1, view2 = _views()
    labels = torch.tensor([0, 1, 2, 4])
    losses = [F.cross_entropy(method.classifier(method.backbone(view)), labels) for view in (view1, view2)]
    torch.testing.assert_close(method([view1, view2], labels=labels), torch.stack(losses).mean())
    assert method.chance_loss == pytest.approx(math.log(5))


def test_top1_accuracy_counts_both_views(method: Supervised) -> None:
    method.eval()
    view1, view2 = _views()
    predicted = method.classifier(method.backbone(torch.cat([view1, view2]))).argmax(dim=1)
    method([view1, view2], labels=predicted[:4])
    expected = (predicted == predicted[:4].repeat(2)).float().mean() * 100
    assert method.top1_accuracy == pytest.approx(float(expected))


def test_the_checkpoint_is_network_and_classifier_of_classifier_cam(method: Supervised, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, method.train(), {"backbone": "resnet10_narrow"}, {"next_epoch": 1})
    encoder, classifier = load_encoder(tmp_path), load_classifier(str(tmp_path))
    images = _views()[0]
    with torch.no_grad():
        scores = encoder.backbone(images) @ classifier.weight.T + classifier.bias
        torch.testing.assert_close(scores, method.eval().classifier(method.backbone(images)))
    assert any("no projector" in notice for notice in encoder.notices)
    maps = classifier_cam(images, encoder.backbone.forward_features, classifier.weight, classifier.bias)
    assert maps.shape == (4, 1, 32, 32)


def _run(config: PretrainConfig, folder: Path) -> LocalSession:
    session = LocalSession(folder / "run")
    run_pretraining(config, session)
    return session


@pytest.fixture
def config(tmp_path: Path) -> PretrainConfig:
    random = np.random.default_rng(0)
    for name in ("bright", "dark"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(8):
            pixels = random.integers(0, 100, (40, 40, 3), dtype=np.uint8) + np.uint8(100 * (name == "bright"))
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{number}.png")
    fields = {
        "data": {"root": str(tmp_path / "images"), "layout": "class-folders"},
        "method": "supervised",
        "backbone": "resnet10_narrow",
        "image_size": 32,
        "color_jitter": [0, 0, 0, 0],
        "num_epochs": 3,
        "batch_size": 8,
        "optimizer": {"name": "sgd", "base_learning_rate": 1.0},
        "execution": {"num_loader_threads": 1, "keep_every": 2},
    }
    return PretrainConfig.model_validate(fields)


def test_classes_are_learnt_from_a_folder_of_each(config: PretrainConfig, tmp_path: Path) -> None:
    history = _run(config, tmp_path).history
    assert history[-1]["top1_accuracy"] > 80
    assert history[-1]["loss"] < history[-1]["chance_loss"] == pytest.approx(math.log(2))
    assert load_classifier(str(tmp_path / "run" / "kept" / "epoch_0001")).weight.shape == (2, 384)


def test_images_without_labels_are_refused(config: PretrainConfig, tmp_path: Path) -> None:
    unlabelled = config.model_copy(update={"data": DataConfig(root=config.data.root)})
    with pytest.raises(InputError, match=r"data\.layout = folder: has no labels .* supervised"):
        _run(unlabelled, tmp_path)
