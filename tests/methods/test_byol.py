import pytest
import torch
import torch.nn.functional as F

from objectaware.methods.byol import BYOL


@pytest.fixture
def method() -> BYOL:
    torch.manual_seed(0)
    return BYOL("resnet10_narrow", hidden_size=32, projection_size=16, momentum=0.9)


def _views() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(4, 3, 32, 32, generator=generator), torch.randn(4, 3, 32, 32, generator=generator)


def test_loss_is_the_sum_of_squared_distances_less_four(method: BYOL) -> None:
    """Golden check 16: −2(cos + cos) = Σ‖p − y‖² − 4, for predictions and targets of unit length."""
    method.eval()
    view1, view2 = _views()

    def prediction(view: torch.Tensor) -> torch.Tensor:
        projection = F.normalize(method.projector(method.backbone(view)), dim=1)
        return F.normalize(method.predictor(projection), dim=1)

    def target(view: torch.Tensor) -> torch.Tensor:
        return F.normalize(method.target_projector(method.target_backbone(view)), dim=1)

    distances = (prediction(view1) - target(view2)).square().sum(dim=1)
    distances = distances + (prediction(view2) - target(view1)).square().sum(dim=1)
    torch.testing.assert_close(method([view1, view2]), (distances - 4).mean())


def test_views_may_change_places(method: BYOL) -> None:
    method.eval()
    view1, view2 = _views()
    torch.testing.assert_close(method([view1, view2]), method([view2, view1]))


def test_the_target_moves_and_takes_no_gradient(method: BYOL) -> None:
    with torch.no_grad():
        next(method.backbone.parameters()).add_(1.0)
    start = next(method.target_backbone.parameters()).clone()
    method(_views()).backward()
    assert not torch.equal(next(method.target_backbone.parameters()), start)
    assert all(parameter.grad is None for parameter in method.target_backbone.parameters())
    assert all(parameter.grad is not None for parameter in method.predictor.parameters())
