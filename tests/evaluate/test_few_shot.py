"""Few-shot error against the rule that it comes to, and on classes that are told apart or not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from objectaware.errors import InputError
from objectaware.evaluate.few_shot import draw_shots, few_shot_error


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
