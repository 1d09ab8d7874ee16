"""The path of 45 penalties beside 45 fits of scikit-learn, alternating, on the same cores.

    OMP_NUM_THREADS=2 python benchmarks/linear_evaluation.py [--num-samples 5000 --num-features 512 --num-classes 100]

The features are like a network's: a latent with a signal of the class, mixed by a random layer and rectified.
scikit-learn fits them in float64 with its default tolerance and enough iterations to reach it. Wall time tells what a
user waits. Where other programs share the cores, compare process times with OMP_NUM_THREADS=1: the threads of a BLAS
spin while they wait, which counts as work (scikit-learn: 115 s with two threads on a loaded machine, 17 with one).
Seen with one thread on an EPYC (Zen 5) core: 2.8 s beside 17.3 and 17.7 s of process time, 6.3 times as fast. Beside
the times stands how far the path's coefficients are from the minimiser (fitted in float64 to 1e-4), for each penalty
from 1e-3 up, at worst.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from objectaware.evaluate.linear import PATH_TOLERANCE
from objectaware.evaluate.logistic import LogisticModel, logistic_path

Result = TypeVar("Result")

PENALTIES = np.geomspace(1e5, 1e-6, 45)


def make_features(num_samples: int, num_features: int, num_classes: int) -> tuple[Tensor, Tensor]:
    """Rectified mixtures of a few latent directions, (N, C), and balanced labels (N,)."""
    generator = torch.Generator().manual_seed(0)
    size = num_features // 2
    labels = torch.arange(num_samples) % num_classes
    centres = 0.5 * torch.randn(num_classes, size, generator=generator)
    latent = (centres[labels] + torch.randn(num_samples, size, generator=generator)) * torch.linspace(1, 0.1, size)
    mixing = torch.randn(size, num_features, generator=generator) / size**0.5
    return torch.relu(latent @ mixing + 0.1), labels


def timed(work: Callable[[], Result]) -> tuple[Result, float, float]:
    """The result, and the seconds that it took by the wall clock and of the process's time."""
    wall, process = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - process


def fit_path(features: Tensor, labels: Tensor, tolerance: float, dtype: torch.dtype) -> list[LogisticModel]:
    """Ours: all penalties, each from where the one before ended."""
    num_classes = int(labels.max()) + 1
    penalties = PENALTIES.tolist()
    path = logistic_path(
        features, labels, num_classes=num_classes, penalties=penalties, tolerance=tolerance, dtype=dtype
    )
    return list(path)


def fit_singly(features: Tensor, labels: Tensor) -> None:
    """scikit-learn's: each penalty by itself."""
    rows, classes = features.double().numpy(), labels.numpy()
    for penalty in PENALTIES:
        LogisticRegression(C=1 / penalty, max_iter=10_000).fit(rows, classes)


def worst_error(models: list[LogisticModel], exact: list[LogisticModel]) -> float:
    """Largest relative error of the coefficients, per cent, for penalties from 1e-3 up."""
    pairs = zip(PENALTIES, models, exact, strict=True)
    errors = [float((m.weight - e.weight).norm() / e.weight.norm()) for penalty, m, e in pairs if penalty >= 1e-3]
    return 100 * max(errors)


def main() -> None:
    """Prints both times in turn, and the error of what the faster way found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-samples", type=int, default=5000)
    parser.add_argument("--num-features", type=int, default=512)
    parser.add_argument("--num-classes", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    features, labels = make_features(arguments.num_samples, arguments.num_features, arguments.num_classes)
    print(
        f"{features.shape[0]} x {features.shape[1]}, {arguments.num_classes} classes, {torch.get_num_threads()} threads"
    )
    for _ in range(arguments.repeats):
        models, wall, process = timed(lambda: fit_path(features, labels, PATH_TOLERANCE, torch.float32))
        _, their_wall, their_process = timed(lambda: fit_singly(features, labels))
        print(f"path {wall:.1f} s (process {process:.1f} s), scikit-learn {their_wall:.1f} s ({their_process:.1f} s)")
        print(f"  as fast: {their_wall / wall:.1f} times (process {their_process / process:.1f})", flush=True)
    exact = fit_path(features, labels, 1e-4, torch.float64)
    print(f"worst error of the coefficients, penalties from 1e-3 up: {worst_error(models, exact):.2f}%")


if __name__ == "__main__":
    main()
