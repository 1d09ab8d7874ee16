"""The path of 45 penalties of linear evaluation beside 45 fits of scikit-learn, in one process.

Once in one thread, in seconds of computing, and once in as many as there are cores, by the wall clock. Asked: at least
5 times as fast, with coefficients within 1% of the minimiser for penalties from 1e-3 up.

The features are like a network's: a latent with a signal of the class, mixed by a random layer and rectified.
scikit-learn fits them in float64 with its default tolerance and enough iterations to reach it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits
from torch import Tensor

from harness import Result, compare, exit_status, in_turn, parser, processor_seconds, seconds, write_results
from objectaware.evaluate.linear import PATH_TOLERANCE
from objectaware.evaluate.logistic import LogisticProblem, solution_path
from objectaware.methods.checkpoint import Classifier

_LIMIT = 0.2
_WORST_ERROR = 0.01
PENALTIES = np.geomspace(1e5, 1e-6, 45)


def main(arguments: Sequence[str]) -> int:
    """Measures and writes the result."""
    options = parser(__doc__, "linear_evaluation", num_pairs=3)
    options.add_argument("--num-samples", type=int, default=5000)
    options.add_argument("--num-features", type=int, default=512)
    options.add_argument("--num-classes", type=int, default=100)
    given = options.parse_args(arguments)
    if given.quick:
        given.num_samples, given.num_features, given.num_classes, given.pairs = 200, 16, 5, 1
    features, labels = make_features(given.num_samples, given.num_features, given.num_classes)
    _check_coefficients(features, labels)
    results = []
    # The threads of a BLAS spin while they wait: with several, only the wall clock of a quiet machine means anything,
    # and on a busy one small fits take minutes.
    clocks = {1: processor_seconds} if given.quick else {1: processor_seconds, len(os.sched_getaffinity(0)): seconds}
    for num_threads, clock in clocks.items():
        torch.set_num_threads(num_threads)
        with threadpool_limits(num_threads):
            results.append(measure(features, labels, num_threads, clock, given.pairs))
    write_results(given.out, results)
    return exit_status(results)


def measure(
    features: Tensor,
    labels: Tensor,
    num_threads: int,
    clock: Callable[[Callable[[], object]], float],
    num_pairs: int,
) -> Result:
    """All penalties, each from where the one before ended, and each by itself."""
    values = in_turn(
        lambda: clock(lambda: fit_path(features, labels, PATH_TOLERANCE, torch.float32)),
        lambda: clock(lambda: fit_singly(features, labels)),
        num_pairs,
    )
    sizes = f"{len(features)} × {features.shape[1]}, {int(labels.max()) + 1} classes"
    case = f"{len(PENALTIES)} penalties, {sizes}, {num_threads} threads"
    return compare(case, *values, unit="s of one core" if clock is processor_seconds else "s", at_most=_LIMIT)


def make_features(num_samples: int, num_features: int, num_classes: int) -> tuple[Tensor, Tensor]:
    """Rectified mixtures of a few latent directions, (N, C), and balanced labels (N,)."""
    generator = torch.Generator().manual_seed(0)
    size = num_features // 2
    labels = torch.arange(num_samples) % num_classes
    centres = 0.5 * torch.randn(num_classes, size, generator=generator)
    latent = (centres[labels] + torch.randn(num_samples, size, generator=generator)) * torch.linspace(1, 0.1, size)
    mixing = torch.randn(size, num_features, generator=generator) / size**0.5
    return torch.relu(latent @ mixing + 0.1), labels


def fit_path(features: Tensor, labels: Tensor, tolerance: float, dtype: torch.dtype) -> list[Classifier]:
    """Ours: all penalties, each from where the one before ended."""
    problem = LogisticProblem(features, labels, int(labels.max()) + 1, dtype)
    return list(solution_path(problem, PENALTIES.tolist(), tolerance=tolerance))


def fit_singly(features: Tensor, labels: Tensor) -> None:
    """scikit-learn's: each penalty by itself."""
    rows, classes = features.double().numpy(), labels.numpy()
    for penalty in PENALTIES:
        LogisticRegression(C=1 / penalty, max_iter=10_000).fit(rows, classes)


def _check_coefficients(features: Tensor, labels: Tensor) -> None:
    """What is timed finds the minimiser, as a fit in float64 to a small tolerance knows it."""
    fast = fit_path(features, labels, PATH_TOLERANCE, torch.float32)
    exact = fit_path(features, labels, 1e-4, torch.float64)
    for penalty, one, other in zip(PENALTIES, fast, exact, strict=True):
        error = float((one.weight - other.weight).norm() / other.weight.norm())
        assert penalty < 1e-3 or error < _WORST_ERROR, (penalty, error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
