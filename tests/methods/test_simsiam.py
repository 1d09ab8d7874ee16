"""SimSiam's loss, its stop-gradient and its heads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from objectaware.config import PretrainConfig
from objectaware.config.variants import default_names
from objectaware.methods.checkpoint import load_encoder, save_checkpoint
from objectaware.methods.simsiam import SimSiam, SimSiamConfig
from objectaware.recipes import read_recipe
from objectaware.training.optimizers.sgd import SGDConfig

RECIPE = Path(__file__).parents[2] / "jobs" / "recipes" / "simsiam_resnet18_folder.yaml"


@pytest.fixture
def method() -> SimSiam:
    torch.manual_seed(0)
    return SimSiam("resnet10_narrow", projection_size=32, bottleneck_size=8)


def _views() -> torch.Tensor:
    return torch.randn(2, 4, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_loss_is_algorithm_1_of_the_paper(method: SimSiam) -> None:
    method.eval()

    def distance(prediction: torch.Tensor, projection: torch.Tensor) -> torch.Tensor:
        projection = projection.detach()
        return -(F.normalize(prediction, dim=1) * F.normalize(projection, dim=1)).sum(dim=1).mean()

    z1, z2 = (method.projector(method.backbone(view)) for view in _views())
    p1, p2 = method.predictor(z1), method.predictor(z2)
    expected = distance(p1, z2) / 2 + distance(p2, z1) / 2
    expected.backward()
    gradients = {name: parameter.grad.clone() for name, parameter in method.named_parameters()}
    method.zero_grad()
    loss = method(_views())
    loss.backward()
    torch.testing.assert_close(loss, expected)
    for name, parameter in method.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], msg=name)


def test_no_gradient_passes_through_the_targets(method: SimSiam) -> None:
    """With a predictor that gives a constant, nothing before it could learn but by the targets."""
    with torch.no_grad():
        method.predictor[-1].weight.zero_()
        method.predictor[-1].bias.fill_(1.0)
    method(_views()).backward()
    assert all(not parameter.grad.any() for parameter in method.projector.parameters())
    assert method.predictor[-1].bias.grad.any()


def test_the_heads_are_the_papers() -> None:
    method = SimSiamConfig().build("resnet10_narrow", num_classes=0)
    layers = [type(layer).__name__ for layer in method.projector]
    assert layers == ["Linear", "BatchNorm1d", "ReLU", "Linear", "BatchNorm1d", "ReLU", "Linear", "BatchNorm1d"]
    assert not method.projector[-1].affine
    assert [layer.out_features for layer in method.projector[::3]] == [2048, 2048, 2048]
    assert [method.predictor[0].out_features, method.predictor[-1].out_features] == [512, 2048]


def test_a_checkpoint_gives_the_projector_to_the_contrastive_score(method: SimSiam, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, method, {"backbone": "resnet10_narrow"}, {"next_epoch": 1})
    encoder = load_encoder(tmp_path)
    features = torch.randn(4, method.projector[0].in_features)
    torch.testing.assert_close(encoder.projector(features), method.eval().projector(features))


def test_the_recipe_is_the_papers_training() -> None:
    config = PretrainConfig.model_validate(read_recipe(RECIPE, default_names(PretrainConfig)))
    assert config.method == SimSiamConfig()
    assert config.optimizer == SGDConfig(
        base_learning_rate=0.05, final_learning_rate=0.0, weight_decay=1e-4, momentum=0.9, decays_biases=True
    )
    assert config.batch_size == 512


def test_the_predictor_alone_may_keep_its_learning_rate() -> None:
    for constant in (False, True):
        method = SimSiamConfig(constant_predictor_rate=constant).build("resnet10_narrow", num_classes=0)
        groups = method.parameter_groups()
        kept = {id(one) for group in groups if group["has_constant_rate"] for one in group["params"]}
        assert kept == ({id(one) for one in method.predictor.parameters()} if constant else set())
        together = [id(one) for group in groups for one in group["params"]]
        assert sorted(together) == sorted(id(one) for one in method.parameters())
