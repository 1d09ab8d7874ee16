"""Choice of the penalty on a hold-out, and accuracies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from objectaware.errors import InputError
from objectaware.evaluate.holdout import stratified_holdout
from objectaware.evaluate.linear import accuracy, classwise_accuracy, linear_evaluation
from objectaware.evaluate.logistic import LogisticModel, fit_logistic


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
    MODEL = LogisticModel(torch.eye(3).double(), torch.zeros(3).double())

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
        model = LogisticModel(torch.eye(3).double(), torch.tensor([0.0, 2.0, 0.0]).double())
        assert accuracy(model, torch.eye(3), torch.tensor([1, 1, 1])) == 100.0

    def test_empty_and_misfitting_inputs_are_refused(self) -> None:
        with pytest.raises(InputError, match="features"):
            accuracy(self.MODEL, torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
        with pytest.raises(InputError, match="labels"):
            accuracy(self.MODEL, torch.eye(3), torch.tensor([0, 1]))
