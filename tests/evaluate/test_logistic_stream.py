"""The solver on batches against the one in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from objectaware.errors import InputError
from objectaware.evaluate.linear import linear_evaluation, streamed_linear_evaluation
from objectaware.evaluate.logistic import logistic_path, solution_path
from objectaware.evaluate.logistic_problem import LogisticProblem
from objectaware.evaluate.logistic_stream import Batch, FeatureBatches, StreamedProblem


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
    memory = logistic_path(features, labels, num_classes=4, penalties=penalties, dtype=dtype)
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
    next(logistic_path(features, labels, num_classes=4, penalties=[1e-2], dtype=torch.float32))
    assert reader.num_passes <= len(passes) + 2 + 3


@pytest.mark.parametrize("refit", [True, False])
def test_the_evaluation_chooses_as_in_memory(refit: bool) -> None:
    features, labels = pooled(240, num_classes=3)
    given = {"refit": refit, "holdout_size": 60, "seed": 3, "num_values": 9, "min_penalty": 1e-3}
    one = linear_evaluation(features, labels, **given)
    other = streamed_linear_evaluation(batches(features, labels), **given)
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
