"""Linear evaluation: the hold-out, the choice of the penalty, the official code's way, and few shots."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from logistic_fits import fit_logistic
from objectaware.errors import InputError
from objectaware.evaluate import linear
from objectaware.evaluate.linear import (
    accuracy,
    classwise_accuracy,
    draw_shots,
    few_shot_error,
    linear_evaluation,
    stratified_holdout,
)
from objectaware.evaluate.logistic import FeatureBatches
from objectaware.methods.checkpoint import Classifier


@settings(deadline=None)
@given(
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    fraction=st.sampled_from([0.2, 0.5, 0.9]),
    seed=st.integers(0, 100),
)
def test_splits_each_class_by_the_share_and_empties_none(counts: list[int], fraction: float, seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    expected = [min(round(fraction * count), count - 1) for count in counts]
    if not any(expected):
        with pytest.raises(InputError, match="holds out none of"):
            stratified_holdout(labels, fraction=fraction, seed=seed)
        return
    kept, held = stratified_holdout(labels, fraction=fraction, seed=seed)
    assert sorted([*kept, *held]) == list(range(len(labels)))
    assert list(np.bincount(labels[held], minlength=len(counts))) == expected


def test_seed_fixes_the_draw() -> None:
    labels = np.arange(40) % 2
    draws = [stratified_holdout(labels, fraction=0.2, seed=seed)[1] for seed in (3, 3, 4)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1])
def test_share_out_of_range_is_refused(fraction: float) -> None:
    with pytest.raises(InputError, match="holdout_fraction"):
        stratified_holdout(np.arange(4) % 2, fraction=fraction, seed=0)


@settings(deadline=None)
@given(counts=st.lists(st.integers(1, 12), min_size=1, max_size=5), seed=st.integers(0, 100), data=st.data())
def test_number_is_met_exactly_in_proportion(counts: list[int], seed: int, data: st.DataObject) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    most = sum(counts) - len(counts)
    size = data.draw(st.integers(1, max(most, 1)))
    if most == 0:
        with pytest.raises(InputError, match="holdout_size"):
            stratified_holdout(labels, size=size, seed=seed)
        return
    kept, held = stratified_holdout(labels, size=size, seed=seed)
    assert sorted([*kept, *held]) == list(range(len(labels)))
    assert len(held) == size
    of_class = np.bincount(labels[held], minlength=len(counts))
    assert (of_class < counts).all()
    # No class gives more than its share, rounded up, but where another could not give its own.
    shares = size * np.array(counts) / sum(counts)
    if (np.ceil(shares) < counts).all():
        assert (np.abs(of_class - shares) < 1).all()


@pytest.mark.parametrize("size", [0, -3, 39])
def test_number_out_of_range_is_refused(size: int) -> None:
    with pytest.raises(InputError, match=r"holdout_size.*1 to 38"):
        stratified_holdout(np.arange(40) % 2, size=size, seed=0)


official_linear_evaluation = partial(linear_evaluation, compat="official")


def noisy_features(num_samples: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Three classes in 2 of 12 dimensions, so that the penalty matters."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(num_samples) % 3
    features = torch.randn(num_samples, 12, generator=generator)
    features[:, :2] += 1.5 * torch.tensor([[0.0, 1.0], [1.0, 0.0], [-1.0, -1.0]])[labels]
    return features, labels


class TestLinearEvaluation:
    def test_path_has_the_accuracies_of_scikit_learn(self) -> None:
        features, labels = noisy_features(400)
        result = linear_evaluation(features, labels, num_values=9, min_penalty=1e-3, holdout_fraction=0.5)
        kept, held = stratified_holdout(labels.numpy(), fraction=0.5, seed=0)
        for penalty, measured in zip(result.penalties, result.holdout_accuracies, strict=True):
            reference = LogisticRegression(C=1 / penalty, tol=1e-8, max_iter=5000).fit(
                features[kept].double().numpy(), labels[kept].numpy()
            )
            expected = 100 * reference.score(features[held].double().numpy(), labels[held].numpy())
            assert measured == pytest.approx(expected, abs=0.1)

    def test_defaults_are_the_papers_penalties(self) -> None:
        features, labels = noisy_features(60)
        penalties = linear_evaluation(features, labels).penalties
        assert penalties[0] == pytest.approx(1e5)
        assert penalties[-1] == pytest.approx(1e-6)
        assert len(penalties) == 45
        np.testing.assert_allclose(penalties[1:] / penalties[:-1], 10 ** (-11 / 44))

    def test_best_penalty_on_the_holdout_is_chosen(self) -> None:
        features, labels = noisy_features(150)
        result = linear_evaluation(features, labels)
        best = result.holdout_accuracies.max()
        assert result.holdout_accuracies[list(result.penalties).index(result.penalty)] == best
        assert best > result.holdout_accuracies[-1]

    def test_ties_go_to_the_larger_penalty(self) -> None:
        labels = torch.arange(30) % 3
        features = torch.eye(3)[labels]
        result = linear_evaluation(features, labels, num_values=5)
        assert list(result.holdout_accuracies[2:]) == [100.0, 100.0, 100.0]
        first = int(np.argmax(result.holdout_accuracies == 100.0))
        assert result.penalty == result.penalties[first]

    @pytest.mark.parametrize("refit", [True, False])
    def test_final_model_is_fitted_on_all_or_on_the_kept_part(self, refit: bool) -> None:
        features, labels = noisy_features(150)
        result = linear_evaluation(features, labels, num_values=7, refit=refit)
        kept, _ = stratified_holdout(labels.numpy(), fraction=0.2, seed=0)
        rows = np.arange(150) if refit else kept
        expected = fit_logistic(features[rows], labels[rows], num_classes=3, penalty=result.penalty)
        torch.testing.assert_close(result.model.weight, expected.weight, rtol=0.01, atol=0.003)

    def test_arrays_and_tensors_give_the_same(self) -> None:
        features, labels = noisy_features(60)
        of_tensors = linear_evaluation(features, labels, num_values=5)
        of_arrays = linear_evaluation(features.numpy(), labels.numpy(), num_values=5)
        torch.testing.assert_close(of_tensors.model.weight, of_arrays.model.weight, rtol=0.0, atol=0.0)
        assert of_tensors.penalty == of_arrays.penalty

    def test_seed_draws_another_holdout(self) -> None:
        features, labels = noisy_features(150)
        first, second = (linear_evaluation(features, labels, num_values=7, seed=seed) for seed in (0, 1))
        assert not np.array_equal(first.holdout_accuracies, second.holdout_accuracies)

    def test_number_of_samples_is_held_out_in_place_of_a_share(self) -> None:
        features, labels = noisy_features(60)
        result = linear_evaluation(features, labels, num_values=3, holdout_size=7)
        sevenths = result.holdout_accuracies * 7 / 100
        np.testing.assert_allclose(sevenths, np.rint(sevenths), atol=1e-9)

    @pytest.mark.parametrize("compat", [None, "official"])
    def test_a_validation_set_chooses_as_a_holdout_does_and_is_not_fitted(
        self, compat: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(linear, "OFFICIAL_MAX_ITERATIONS", 30)
        features, labels = noisy_features(150)
        kept, held = stratified_holdout(labels.numpy(), fraction=0.2, seed=0)
        chosen = FeatureBatches(lambda: iter([(features[held], labels[held])]))
        given = {"num_values": 7, "compat": compat}
        alone = linear_evaluation(features[kept], labels[kept], validation=chosen, **given)
        from_train = linear_evaluation(features, labels, refit=False, **given)
        np.testing.assert_array_equal(alone.holdout_accuracies, from_train.holdout_accuracies)
        assert alone.penalty == from_train.penalty
        torch.testing.assert_close(alone.model.weight, from_train.model.weight, rtol=0, atol=0)

    def test_gap_in_the_class_numbers_is_refused(self) -> None:
        features, labels = noisy_features(60)
        labels[labels == 1] = 5
        with pytest.raises(InputError, match=r"classes \[1, 3, 4\]"):
            linear_evaluation(features, labels)

    def test_features_that_are_not_finite_are_refused(self) -> None:
        features, labels = noisy_features(60)
        features[0, 0] = float("inf")
        with pytest.raises(InputError, match="train_features"):
            linear_evaluation(features, labels)


class TestAccuracy:
    MODEL = Classifier(torch.eye(3).double(), torch.zeros(3).double())

    def test_counts_right_predictions_in_per_cent(self) -> None:
        features = torch.eye(3)[[0, 1, 2, 2]]
        assert accuracy(self.MODEL, features, torch.tensor([0, 1, 2, 0])) == 75.0
        assert accuracy(self.MODEL, features.numpy(), np.array([0, 1, 2, 0])) == 75.0

    def test_label_of_no_class_is_an_error(self) -> None:
        assert accuracy(self.MODEL, torch.eye(3), torch.tensor([0, -1, 7])) == pytest.approx(100 / 3)

    def test_by_class_with_nan_for_one_without_samples(self) -> None:
        features = torch.eye(3)[[0, 1, 0, 0]]
        found = classwise_accuracy(self.MODEL, features, torch.tensor([0, 0, 0, 2]))
        np.testing.assert_allclose(found, [200 / 3, np.nan, 0.0])

    def test_bias_counts(self) -> None:
        model = Classifier(torch.eye(3).double(), torch.tensor([0.0, 2.0, 0.0]).double())
        assert accuracy(model, torch.eye(3), torch.tensor([1, 1, 1])) == 100.0

    def test_empty_and_misfitting_inputs_are_refused(self) -> None:
        with pytest.raises(InputError, match="features"):
            accuracy(self.MODEL, torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
        with pytest.raises(InputError, match="labels"):
            accuracy(self.MODEL, torch.eye(3), torch.tensor([0, 1]))


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
    monkeypatch.setattr(linear, "OFFICIAL_MAX_ITERATIONS", 10)
    features, labels = blobs(30)
    with pytest.raises(InputError, match="diverged"):
        official_linear_evaluation(features * 1e36, labels, num_values=1)


def two_classes(num_samples: int, gap: float, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(num_samples) % 2
    features = torch.randn(num_samples, 5, generator=generator)
    features[:, 0] += gap * labels
    return features, labels


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), unit=st.sampled_from([1e-2, 1.0, 100.0]))
def test_with_one_shot_of_two_classes_the_nearest_shot_decides(seed: int, unit: float) -> None:
    features, labels = two_classes(30, 2.0, seed)
    features = unit * (features + 3.0)
    shown = draw_shots(labels.numpy(), num_shots=1, seed=seed)
    assert labels[shown].sum() == 1
    rest = np.setdiff1d(np.arange(30), shown)
    nearest = torch.cdist(features[rest].double(), features[shown].double()).argmin(dim=1)
    expected = 100 * float((labels[shown][nearest] != labels[rest]).double().mean())
    assert few_shot_error(features, labels, num_shots=1, seed=seed) == pytest.approx(expected)


def test_classes_far_apart_leave_no_error_and_equal_ones_half() -> None:
    features, labels = two_classes(200, 50.0, 0)
    assert few_shot_error(features, labels, num_shots=1, seed=0) == 0.0
    features, labels = two_classes(2000, 0.0, 0)
    assert few_shot_error(features, labels, num_shots=1, seed=0) == pytest.approx(50.0, abs=5.0)


def test_more_shots_help_and_seeds_differ() -> None:
    features, labels = two_classes(600, 1.5, 1)
    errors = {
        shots: [few_shot_error(features, labels, num_shots=shots, seed=seed) for seed in range(5)] for shots in (1, 50)
    }
    assert np.mean(errors[50]) < np.mean(errors[1])
    assert len(set(errors[1])) > 1
    assert few_shot_error(features, labels, num_shots=1, seed=3) == errors[1][3]


def test_shots_are_the_same_number_of_each_class_without_repetition() -> None:
    labels = np.array([0] * 5 + [1] * 90 + [2] * 8)
    shown = draw_shots(labels, num_shots=4, seed=2)
    assert np.bincount(labels[shown]).tolist() == [4, 4, 4]
    assert len(set(shown.tolist())) == 12


def test_a_class_without_an_image_to_classify_is_refused() -> None:
    features, labels = two_classes(6, 1.0, 0)
    with pytest.raises(InputError, match="num_shots = 3"):
        few_shot_error(features, labels, num_shots=3, seed=0)
