import math

import pytest
import torch
import torch.nn.functional as F

from objectaware.evaluate.representation import alignment, feature_std, uniformity


def _random(number: int, width: int) -> torch.Tensor:
    return F.normalize(torch.randn(number, width, generator=torch.Generator().manual_seed(0)), dim=1)


def test_an_even_spread() -> None:
    embeddings = _random(500, 128)
    assert feature_std(embeddings) == pytest.approx(1, abs=0.02)
    # At right angles all squared distances are 2.
    assert uniformity(embeddings) == pytest.approx(-4, abs=0.1)
    assert alignment(embeddings[:250], embeddings[250:]) == pytest.approx(2, abs=0.05)


def test_a_single_point() -> None:
    embeddings = _random(1, 16).expand(10, 16)
    assert feature_std(embeddings) == pytest.approx(0, abs=1e-6)
    assert uniformity(embeddings) == pytest.approx(0, abs=1e-5)
    assert alignment(embeddings, embeddings) == 0


def test_the_published_formulas() -> None:
    """Of three points on the circle, by hand."""
    points = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    expected = math.log((math.exp(-2 * 2) + math.exp(-2 * 2) + math.exp(-2 * 4)) / 3)
    assert uniformity(points) == pytest.approx(expected)
    assert alignment(points, points.roll(1, dims=0)) == pytest.approx((4 + 2 + 2) / 3)
    columns = torch.tensor([1.0, 1 / math.sqrt(3)])  # standard deviations of (1, 0, −1) and (0, 1, 0)
    assert feature_std(points) == pytest.approx(float(columns.mean()) * math.sqrt(2))
