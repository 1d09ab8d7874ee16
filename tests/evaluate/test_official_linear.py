"""The official code's linear evaluation: what it minimises, in which order, and what it keeps."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from objectaware.errors import InputError
from objectaware.evaluate import official_linear
from objectaware.evaluate.holdout import stratified_holdout
from objectaware.evaluate.linear import accuracy, linear_evaluation
from objectaware.evaluate.official_linear import official_linear_evaluation


def blobs(num_samples: int, num_features: int = 6, num_classes: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(num_samples) % num_classes
    centres = torch.randn(num_classes, num_features, generator=generator)
    return centres[labels] + torch.randn(num_samples, num_features, generator=generator), labels


def mean_form_minimum(features: Tensor, labels: Tensor, strength: float, *, of_bias: bool) -> Tensor:
    """Weights (C, D) at the minimum of the mean form, by SciPy."""
    num_classes = int(labels.max()) + 1
    rows = features.double()

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.tensor(flat.reshape(num_classes, -1), requires_grad=True)
        weight, bias = point[:, :-1], point[:, -1]
        loss = nn.functional.cross_entropy(rows @ weight.T + bias, labels) + strength / 2 * weight.square().mean()
        if of_bias:
            loss = loss + strength / 2 * bias.square().mean()
        (gradient,) = torch.autograd.grad(loss, point)
        return loss.item(), gradient.numpy().ravel()

    start = np.zeros(num_classes * (rows.shape[1] + 1))
    best = scipy.optimize.minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-9})
    return torch.from_numpy(best.x.reshape(num_classes, -1)[:, :-1])


def relative_error(found: Tensor, truth: Tensor) -> float:
    return float((found - truth).norm() / truth.norm())


@pytest.mark.parametrize("strength", [0.1, 1.0, 10.0])
def test_one_fit_minimises_the_mean_form_with_the_biases_in_it(strength: float) -> None:
    features, labels = blobs(120)
    features[:, 0] += 3.0 * (labels == 1)
    features += 2.0  # so that the biases are not small
    kept, _ = stratified_holdout(labels.numpy(), size=30, seed=0)
    result = official_linear_evaluation(
        features, labels, holdout_size=30, num_values=1, min_penalty=strength, max_penalty=strength
    )
    expected, unlike = (
        mean_form_minimum(features[kept], labels[kept], strength, of_bias=of_bias) for of_bias in (True, False)
    )
    # The optimiser stops where its steps change the loss by less than float32 can tell.
    assert relative_error(result.model.weight, expected) < 3e-3
    assert relative_error(result.model.weight, unlike) > 0.01


def test_its_penalty_in_scikit_learns_terms() -> None:
    """Golden check 19: the bias unpenalised, w is C = D * classes / (w * N)."""
    features, labels = blobs(120)
    strength = 0.7
    expected = mean_form_minimum(features, labels, strength, of_bias=False)
    inverse = features.shape[1] * 3 / (strength * len(features))
    reference = LogisticRegression(C=inverse, tol=1e-10, max_iter=10_000).fit(features.double().numpy(), labels.numpy())
    assert relative_error(torch.from_numpy(reference.coef_), expected) < 1e-4


def test_values_go_up_from_the_smallest_and_the_first_of_equals_is_kept() -> None:
    labels = torch.arange(30) % 3
    features = 3 * torch.eye(3)[labels]
    result = official_linear_evaluation(features, labels, num_values=3, min_penalty=1e-1, max_penalty=10.0)
    np.testing.assert_allclose(result.penalties, [0.1, 1.0, 10.0])
    assert result.holdout_accuracies[0] == 100.0
    assert result.penalty == result.penalties[0]


def test_the_classifier_is_kept_as_it_was_at_its_best() -> None:
    features, labels = blobs(150)
    _, held = stratified_holdout(labels.numpy(), fraction=0.2, seed=0)
    result = official_linear_evaluation(features, labels, num_values=5, min_penalty=1e-2)
    assert result.holdout_accuracies.max() > result.holdout_accuracies[-1]
    assert accuracy(result.model, features[held], labels[held]) == result.holdout_accuracies.max()


def test_a_fit_begins_where_the_one_before_ended() -> None:
    """At its end already, the second of two fits with nearly the same w makes hardly a step."""
    features, labels = blobs(90)
    calls = []
    layer = nn.Linear.forward

    def counted(self: nn.Linear, rows: Tensor) -> Tensor:
        calls.append(len(rows))
        return layer(self, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.Linear, "forward", counted)
        official_linear_evaluation(features, labels, num_values=1, min_penalty=1.0, max_penalty=1.0)
        num_alone = len(calls)
        official_linear_evaluation(features, labels, num_values=2, min_penalty=1.0, max_penalty=1.0001)
    assert len(calls) - num_alone < 1.5 * num_alone


def test_it_is_the_same_twice_near_the_exact_one_and_begins_by_its_seed() -> None:
    features, labels = blobs(200)
    given = {"num_values": 4, "min_penalty": 1e-2, "max_penalty": 1e2}
    one, two = (official_linear_evaluation(features, labels, **given) for _ in range(2))
    assert torch.equal(one.model.weight, two.model.weight)
    exact = linear_evaluation(features, labels, refit=False, num_values=9)
    assert one.holdout_accuracies.max() == pytest.approx(exact.holdout_accuracies.max(), abs=5.0)
    other = official_linear_evaluation(features, labels, seed=1, **given)
    assert not torch.equal(one.model.weight, other.model.weight)


def test_features_on_which_it_diverges_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(official_linear, "MAX_ITERATIONS", 10)
    features, labels = blobs(30)
    with pytest.raises(InputError, match="diverged"):
        official_linear_evaluation(features * 1e36, labels, num_values=1)
