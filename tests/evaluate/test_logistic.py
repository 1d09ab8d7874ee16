"""The classifier, in memory and on batches, against scikit-learn, its own definition and planted trouble."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from logistic_fits import fit_logistic
from objectaware.errors import InputError
from objectaware.evaluate import logistic
from objectaware.evaluate.linear import linear_evaluation
from objectaware.evaluate.logistic import (
    Batch,
    Evaluation,
    FeatureBatches,
    LogisticProblem,
    StreamedProblem,
    solution_path,
)
from objectaware.methods.checkpoint import Classifier


def blobs(
    num_samples: int, num_features: int, num_classes: int, *, spread: float = 1.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Features like pooled activations: no negative ones, unlike scales, an offset, classes that overlap."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(num_classes, num_features, generator=generator, dtype=torch.float64)
    labels = torch.arange(num_samples) % num_classes
    noise = spread * torch.randn(num_samples, num_features, generator=generator, dtype=torch.float64)
    scales = torch.logspace(-1, 1, num_features, dtype=torch.float64)
    return torch.relu(centres[labels] + noise + 0.5) * scales, labels


def collinear(features: Tensor) -> Tensor:
    return torch.cat([features, features[:, :3], features[:, :1] - 2 * features[:, 1:2]], dim=1)


def sklearn_fit(features: Tensor, labels: Tensor, inverse_penalty: float) -> LogisticRegression:
    return LogisticRegression(C=inverse_penalty, tol=1e-10, max_iter=20_000).fit(features.numpy(), labels.numpy())


def relative_error(found: Tensor, truth: Tensor) -> float:
    return float((found - truth).norm() / truth.norm())


class TestAgreementWithScikitLearn:
    @pytest.mark.parametrize("penalty", [1e-3, 1e-1, 10.0, 1e3])
    @pytest.mark.parametrize("with_collinear", [False, True], ids=["plain", "collinear"])
    def test_coefficients_and_accuracy(self, penalty: float, with_collinear: bool) -> None:
        features, labels = blobs(300, 8, 4, spread=1.5)
        if with_collinear:
            features = collinear(features)
        model = fit_logistic(features, labels, num_classes=4, penalty=penalty)
        reference = sklearn_fit(features, labels, 1 / penalty)
        assert relative_error(model.weight, torch.from_numpy(reference.coef_)) < 0.01
        bias = torch.from_numpy(reference.intercept_)
        torch.testing.assert_close(model.bias, bias - bias.mean(), rtol=0.01, atol=0.01)
        accuracy = 100 * float((model.predict(features) == labels).double().mean())
        assert accuracy == pytest.approx(100 * reference.score(features.numpy(), labels.numpy()), abs=0.1)

    def test_separable_with_a_weak_penalty(self) -> None:
        features, labels = blobs(60, 20, 3, spread=0.3)
        model = fit_logistic(features, labels, num_classes=3, penalty=1e-3)
        reference = sklearn_fit(features, labels, 1e3)
        assert relative_error(model.weight, torch.from_numpy(reference.coef_)) < 0.01

    def test_two_classes_correspond_to_twice_the_inverse_penalty(self) -> None:
        features, labels = blobs(120, 5, 2)
        model = fit_logistic(features, labels, num_classes=2, penalty=3.0)
        reference = sklearn_fit(features, labels, 2 / 3.0)
        difference = (model.weight[1] - model.weight[0]).unsqueeze(0)
        assert relative_error(difference, torch.from_numpy(reference.coef_)) < 0.01

    def test_float32_path_ends_close_enough_to_compare_accuracies(self) -> None:
        features, labels = blobs(300, 8, 4, spread=1.5)
        penalties = [10.0, 1.0, 0.1, 1e-2, 1e-3]
        path = solution_path(LogisticProblem(features.float(), labels, 4, torch.float32), penalties)
        for penalty, model in zip(penalties, path, strict=True):
            reference = sklearn_fit(features, labels, 1 / penalty)
            assert relative_error(model.weight, torch.from_numpy(reference.coef_)) < 0.02


def test_mean_penalty_of_the_official_code() -> None:
    """Golden check 19: w / 2 * mean(W^2) against the mean cross-entropy, bias unpenalised."""
    num_samples, num_features, num_classes, strength = 120, 4, 3, 0.7
    features, labels = blobs(num_samples, num_features, num_classes)

    def mean_form(flat: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.tensor(flat.reshape(num_classes, -1), requires_grad=True)
        scores = features @ point[:, :-1].T + point[:, -1]
        penalty = strength / 2 * point[:, :-1].square().mean()
        loss = torch.nn.functional.cross_entropy(scores, labels) + penalty
        (gradient,) = torch.autograd.grad(loss, point)
        return loss.item(), gradient.numpy().ravel()

    start = np.zeros(num_classes * (num_features + 1))
    best = scipy.optimize.minimize(mean_form, start, jac=True, method="BFGS", options={"gtol": 1e-9})
    weight = torch.from_numpy(best.x.reshape(num_classes, -1)[:, :-1])
    penalty = strength * num_samples / (num_features * num_classes)
    model = fit_logistic(features, labels, num_classes=num_classes, penalty=penalty, tolerance=1e-6)
    assert relative_error(model.weight, weight) < 1e-4
    assert relative_error(torch.from_numpy(sklearn_fit(features, labels, 1 / penalty).coef_), weight) < 1e-4


class TestObjective:
    def test_gradient_agrees_with_finite_differences(self) -> None:
        features, labels = blobs(20, 4, 3)
        problem = LogisticProblem(features, labels, 3, torch.float64)
        point = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        gradient = problem.evaluate(point, 0.5).gradient
        for index in np.ndindex(3, 5):
            step = torch.zeros_like(point)
            step[index] = 1e-6
            above, below = (problem.evaluate(point + sign * step, 0.5).value for sign in (1, -1))
            assert (above - below) / 2e-6 == pytest.approx(float(gradient[index]), abs=1e-8)

    def test_float32_keeps_the_digits_of_a_confident_prediction(self) -> None:
        features, labels = torch.tensor([[1.0], [-1.0]]), torch.tensor([0, 1])
        exact = LogisticProblem(features, labels, 2, torch.float64)
        rounded = LogisticProblem(features, labels, 2, torch.float32)
        point = torch.tensor([[10.0, 0.0], [-10.0, 0.0]], dtype=torch.float64)
        value, gradient, _ = rounded.evaluate(point, 1e-12)
        true_value, true_gradient, _ = exact.evaluate(point, 1e-12)
        assert value == pytest.approx(true_value, rel=1e-5)
        torch.testing.assert_close(gradient[:, 0], true_gradient[:, 0], rtol=1e-5, atol=0.0)

    def test_points_stand_for_the_weights_of_the_features_as_given(self) -> None:
        features, labels = blobs(30, 5, 3)
        problem = LogisticProblem(features, labels, 3, torch.float64)
        generator = torch.Generator().manual_seed(2)
        weight, bias = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((3, 5), (3,)))
        point = problem.point_of(weight, bias)
        back, back_bias = problem.weight_and_bias_of(point)
        torch.testing.assert_close(back, weight)
        torch.testing.assert_close(back_bias, bias - bias.mean())
        losses = torch.nn.functional.cross_entropy(features @ weight.T + bias, labels, reduction="sum")
        expected = (losses + 0.7 / 2 * weight.square().sum()) / 30
        assert problem.evaluate(point, 0.7).value == pytest.approx(float(expected))

    def test_correlated_features_cost_no_more_passes_than_their_principal_components(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        plain, labels = blobs(400, 12, 4)
        turn = torch.linalg.qr(torch.randn(12, 12, generator=generator, dtype=torch.float64)).Q
        passes = []
        evaluate = LogisticProblem.evaluate

        def counted(problem: LogisticProblem, point: Tensor, penalty: float) -> Evaluation:
            passes.append(penalty)
            return evaluate(problem, point, penalty)

        monkeypatch.setattr(LogisticProblem, "evaluate", counted)
        counts = []
        axes = torch.linalg.eigh(torch.cov(plain.T)).eigenvectors
        for features in (plain @ axes, plain @ axes @ turn):
            passes.clear()
            fit_logistic(features, labels, num_classes=4, penalty=1e-2)
            counts.append(len(passes))
        assert counts[1] <= counts[0] + 2

    def test_minimum_leaves_no_gradient(self) -> None:
        features, labels = blobs(50, 4, 3)
        model = fit_logistic(features, labels, num_classes=3, penalty=2.0, tolerance=1e-8)
        weight, bias = model.weight.clone().requires_grad_(), model.bias.clone().requires_grad_()
        scores = features @ weight.T + bias
        loss = torch.nn.functional.cross_entropy(scores, labels, reduction="sum") + weight.square().sum()
        for gradient in torch.autograd.grad(loss, [weight, bias]):
            assert float(gradient.abs().max()) < 1e-6


class TestSolution:
    def test_warm_start_ends_where_a_cold_one_does(self) -> None:
        features, labels = blobs(150, 6, 3)
        cold = fit_logistic(features, labels, num_classes=3, penalty=0.1, tolerance=1e-5)
        far = Classifier(torch.full((3, 6), 5.0).double(), torch.tensor([3.0, -4.0, 1.0]).double())
        warm = fit_logistic(features, labels, num_classes=3, penalty=0.1, tolerance=1e-5, initial=far)
        assert relative_error(warm.weight, cold.weight) < 1e-4
        torch.testing.assert_close(warm.bias, cold.bias, rtol=1e-3, atol=1e-3)

    def test_start_at_the_solution_stays_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        features, labels = blobs(150, 6, 3)
        cold = fit_logistic(features, labels, num_classes=3, penalty=0.1)
        monkeypatch.setattr(logistic, "MAX_ITERATIONS", 1)
        again = fit_logistic(features, labels, num_classes=3, penalty=0.1, initial=cold)
        torch.testing.assert_close(again.weight, cold.weight)
        torch.testing.assert_close(again.bias, cold.bias)

    def test_path_agrees_with_single_fits(self) -> None:
        features, labels = blobs(150, 6, 3)
        penalties = [float(value) for value in np.geomspace(1e4, 1e-3, 12)]
        for penalty, model in zip(
            penalties, solution_path(LogisticProblem(features, labels, 3, torch.float64), penalties), strict=True
        ):
            single = fit_logistic(features, labels, num_classes=3, penalty=penalty)
            assert relative_error(model.weight, single.weight) < 3e-3

    @pytest.mark.parametrize("tolerance", [1e-1, 1e-2, 1e-4])
    def test_tolerance_bounds_the_error(self, tolerance: float) -> None:
        features, labels = blobs(150, 6, 3)
        exact = fit_logistic(features, labels, num_classes=3, penalty=1.0, tolerance=1e-9)
        model = fit_logistic(features, labels, num_classes=3, penalty=1.0, tolerance=tolerance)
        assert relative_error(model.weight, exact.weight) <= tolerance

    def test_strong_penalty_does_not_end_the_search_before_the_bias_is_found(self) -> None:
        features, labels = blobs(150, 6, 3)
        exact = fit_logistic(features, labels, num_classes=3, penalty=1e6, tolerance=1e-8)
        off = Classifier(exact.weight, exact.bias + 1e-4 * torch.tensor([1.0, -1.0, 0.0]))
        model = fit_logistic(features, labels, num_classes=3, penalty=1e6, initial=off)
        spread = float((features @ exact.weight.T).std())
        torch.testing.assert_close(model.bias, exact.bias, rtol=0.0, atol=0.01 * spread)

    def test_separable_toy_is_learned_whole(self) -> None:
        features = torch.tensor([[0.0, 1.0], [1.0, 0.0], [-1.0, -1.0]]).repeat(5, 1)
        labels = torch.arange(15) % 3
        model = fit_logistic(features, labels, num_classes=3, penalty=1e-6)
        assert torch.equal(model.predict(features), labels)

    def test_features_that_tell_nothing_leave_the_class_frequencies(self) -> None:
        labels = torch.tensor([0, 0, 0, 1])
        model = fit_logistic(torch.full((4, 3), 7.0), labels, num_classes=2, penalty=1.0)
        assert float(model.weight.abs().max()) == 0.0
        assert float(model.bias[0] - model.bias[1]) == pytest.approx(np.log(3))

    def test_numpy_and_half_precision_are_accepted(self) -> None:
        features, labels = blobs(60, 4, 3)
        expected = fit_logistic(features, labels, num_classes=3, penalty=1.0)
        from_numpy = fit_logistic(features.numpy(), labels.numpy().astype(np.int32), num_classes=3, penalty=1.0)
        half = fit_logistic(features.half(), labels, num_classes=3, penalty=1.0)
        torch.testing.assert_close(from_numpy.weight, expected.weight)
        assert relative_error(half.weight, expected.weight) < 0.01

    @settings(max_examples=20, deadline=None)
    @given(seed=st.integers(0, 2**16), penalty=st.sampled_from([1e-2, 1.0, 100.0]))
    def test_order_of_samples_classes_and_features_does_not_matter(self, seed: int, penalty: float) -> None:
        features, labels = blobs(40, 3, 3, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        samples, classes, columns = (torch.randperm(size, generator=generator) for size in (40, 3, 3))
        model = fit_logistic(features, labels, num_classes=3, penalty=penalty, tolerance=1e-6)
        permuted = fit_logistic(
            features[samples][:, columns],
            classes[labels][samples],
            num_classes=3,
            penalty=penalty,
            tolerance=1e-6,
        )
        torch.testing.assert_close(permuted.weight[classes], model.weight[:, columns], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(permuted.bias[classes], model.bias, rtol=1e-3, atol=1e-3)

    @settings(max_examples=20, deadline=None)
    @given(offset=st.floats(-100, 100), unit=st.sampled_from([1e-3, 1.0, 1e3]))
    def test_offset_and_unit_of_the_features_are_taken_up(self, offset: float, unit: float) -> None:
        features, labels = blobs(40, 3, 3)
        model = fit_logistic(features, labels, num_classes=3, penalty=1.0, tolerance=1e-6)
        moved = fit_logistic(unit * (features + offset), labels, num_classes=3, penalty=unit**2, tolerance=1e-6)
        torch.testing.assert_close(moved.weight * unit, model.weight, rtol=1e-3, atol=1e-4)


class TestRefusals:
    def test_features_that_are_not_finite(self) -> None:
        features, labels = blobs(10, 2, 2)
        features[3, 1] = float("nan")
        with pytest.raises(InputError, match="1 of 10 rows"):
            fit_logistic(features, labels, num_classes=2, penalty=1.0)

    @pytest.mark.parametrize("wrong", [-1, 2])
    def test_labels_out_of_range(self, wrong: int) -> None:
        features, labels = blobs(10, 2, 2)
        labels[0] = wrong
        with pytest.raises(InputError, match="must lie in 0 to 1"):
            fit_logistic(features, labels, num_classes=2, penalty=1.0)

    def test_class_without_samples_is_named(self) -> None:
        features, labels = blobs(10, 2, 2)
        with pytest.raises(InputError, match=r"classes \[2\]"):
            fit_logistic(features, labels, num_classes=3, penalty=1.0)

    @pytest.mark.parametrize(
        "labels", [torch.zeros(9, dtype=torch.int64), torch.zeros(10), torch.zeros(10, 1, dtype=torch.int64)]
    )
    def test_labels_of_another_shape_or_type(self, labels: Tensor) -> None:
        features, _ = blobs(10, 2, 2)
        with pytest.raises(InputError, match="must be integers, one for each of 10 rows"):
            fit_logistic(features, labels, num_classes=2, penalty=1.0)

    @pytest.mark.parametrize("shape", [(0, 3), (3,)])
    def test_no_matrix_of_features(self, shape: tuple[int, ...]) -> None:
        labels = torch.zeros(shape[0], dtype=torch.int64)
        with pytest.raises(InputError, match="floating-point matrix"):
            fit_logistic(torch.zeros(shape), labels, num_classes=2, penalty=1.0)


def pooled(num_samples: int, num_features: int = 8, num_classes: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features like pooled activations: no negative ones, unlike scales, an offset, classes that overlap."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(num_classes, num_features, generator=generator)
    labels = torch.arange(num_samples) % num_classes
    noise = 1.5 * torch.randn(num_samples, num_features, generator=generator)
    return torch.relu(centres[labels] + noise + 0.5) * torch.logspace(-1, 1, num_features), labels


class Reader:
    """Batches of a tensor; counts the passes and the rows of the largest batch."""

    def __init__(self, features: Tensor, labels: Tensor, size: int) -> None:
        self.features, self.labels, self.size, self.num_passes = features, labels, size, 0

    def __call__(self) -> Iterator[Batch]:
        self.num_passes += 1
        yield from zip(self.features.split(self.size), self.labels.split(self.size), strict=True)


def batches(features: Tensor, labels: Tensor, size: int = 37) -> FeatureBatches:
    return FeatureBatches(Reader(features, labels, size))


@settings(max_examples=15, deadline=None)
@given(size=st.integers(1, 130), seed=st.integers(0, 99), penalty=st.sampled_from([1e-3, 1.0, 1e4]))
def test_value_gradient_and_curvature_are_those_in_memory(size: int, seed: int, penalty: float) -> None:
    features, labels = pooled(120, seed=seed)
    features = features.double()
    memory = LogisticProblem(features, labels, 4, torch.float64)
    streamed = StreamedProblem(batches(features, labels, size), 4, torch.float64)
    generator = torch.Generator().manual_seed(seed)
    weight, bias = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((4, 8), (4,)))
    # The principal axes may differ in sign, so that the same point is told by its weights.
    one, other = (problem.evaluate(problem.point_of(weight, bias), penalty) for problem in (memory, streamed))
    assert other.value == pytest.approx(one.value, rel=1e-10)
    zero = torch.zeros(4, dtype=torch.float64)
    ends = [
        problem.weight_and_bias_of(problem.point_of(weight, bias) - result.gradient)[0]
        for problem, result in ((memory, one), (streamed, other))
    ]
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(other.doubts(), one.doubts())
    torch.testing.assert_close(streamed.point_of(weight, zero)[:, -1], memory.point_of(weight, zero)[:, -1])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_path_ends_where_the_one_in_memory_does(dtype: torch.dtype) -> None:
    features, labels = pooled(300)
    penalties = [1e3, 10.0, 0.1, 1e-3]
    memory = solution_path(LogisticProblem(features, labels, 4, dtype), penalties)
    streamed = solution_path(StreamedProblem(batches(features, labels), 4, dtype), penalties)
    for one, other in zip(memory, streamed, strict=True):
        # What all classes have in common changes no probability, and a weak penalty hardly holds it.
        differences = (one.weight - one.weight.mean(dim=0)) - (other.weight - other.weight.mean(dim=0))
        assert float(differences.norm() / one.weight.norm()) < 1e-3
        torch.testing.assert_close(one.bias, other.bias, rtol=2e-3, atol=2e-3)


def test_it_needs_no_more_passes_than_in_memory_by_much(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = pooled(300)
    reader = Reader(features, labels, 64)
    next(solution_path(StreamedProblem(FeatureBatches(reader), 4, torch.float32), [1e-2]))
    passes: list[float] = []
    evaluate = LogisticProblem.evaluate
    monkeypatch.setattr(
        LogisticProblem, "evaluate", lambda *arguments: passes.append(arguments[2]) or evaluate(*arguments)
    )
    next(solution_path(LogisticProblem(features, labels, 4, torch.float32), [1e-2]))
    assert reader.num_passes <= len(passes) + 2 + 3


@pytest.mark.parametrize("refit", [True, False])
def test_the_evaluation_chooses_as_in_memory(refit: bool) -> None:
    features, labels = pooled(240, num_classes=3)
    given = {"refit": refit, "holdout_size": 60, "seed": 3, "num_values": 9, "min_penalty": 1e-3}
    one = linear_evaluation(features, labels, **given)
    other = linear_evaluation(batches(features, labels), **given)
    # A row of 60 on the boundary may fall to either side.
    np.testing.assert_allclose(other.holdout_accuracies, one.holdout_accuracies, atol=100 / 60 + 1e-9)
    assert other.penalty == one.penalty
    assert float((one.model.weight - other.model.weight).norm() / one.model.weight.norm()) < 0.01


def test_selected_rows_are_the_same_in_whatever_batches() -> None:
    features, labels = pooled(50)
    chosen = torch.arange(50) % 7 == 2
    for size in (1, 13, 50):
        found = list(batches(features, labels, size).select(chosen).read())
        torch.testing.assert_close(torch.cat([rows for rows, _ in found]), features[chosen])
        assert torch.cat([classes for _, classes in found]).tolist() == labels[chosen].tolist()


def test_a_column_that_never_changes_and_equal_rows_do_no_harm() -> None:
    features, labels = torch.full((12, 3), 2.0), torch.arange(12) % 2
    (model,) = solution_path(StreamedProblem(batches(features, labels, 5), 2, torch.float64), [1.0])
    assert torch.isfinite(model.weight).all()
    torch.testing.assert_close(model.weight, torch.zeros_like(model.weight))


def test_bad_features_and_empty_classes_are_refused() -> None:
    features, labels = pooled(40)
    with pytest.raises(InputError, match=r"classes \[4\]"):
        StreamedProblem(batches(features, labels), 5, torch.float32)
    features[39, 0] = float("nan")
    with pytest.raises(InputError, match="hold NaN"):
        StreamedProblem(batches(features, labels), 4, torch.float32)
