"""Linear evaluation: accuracy of a linear classifier on features that stay fixed.

`linear_evaluation` follows the paper's appendix, which follows SimCLR: multinomial logistic regression whose L2 penalty
is chosen among 45 logarithmically spaced values from 1e-6 to 1e5, on a held-out part of the training split or on a
validation set. The penalty has the sum form of `objectaware.evaluate.logistic`, sum_i CE_i + penalty / 2 * ||W||^2.

With `compat="official"` it does what the official code does, for its numbers. `few_shot_error` fits the classifier to a
few images per class. The last functions put accuracies together: over seeds, backgrounds and corruptions.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from objectaware.data.sets.imagenet_shifts import CORRUPTIONS as CORRUPTIONS_BY_KIND
from objectaware.errors import InputError
from objectaware.evaluate.features import Array, as_checked
from objectaware.evaluate.logistic import FeatureBatches, LogisticProblem, StreamedProblem, count_classes, solution_path
from objectaware.methods.checkpoint import Classifier

# Relative error of the weights along the path, where models are compared by their accuracy only.
PATH_TOLERANCE = 3e-3

VARIANTS = ("original", "only_bg_b", "only_bg_t", "no_fg", "only_fg", "mixed_same", "mixed_rand", "mixed_next")
"""Variants of the Backgrounds Challenge in the order of the paper's table `bg-main` (`no_fg` is not printed)."""

CORRUPTIONS = tuple(corruption for kind in CORRUPTIONS_BY_KIND.values() for corruption in kind)
"""ImageNet-C's corruptions (Hendrycks & Dietterich, 2019), in the order of the paper's table `bg-imagenetc`."""

_SEVERITY = re.compile(r"(?P<corruption>[\w ]+)-(?P<severity>[1-5])")
OFFICIAL_MAX_ITERATIONS = 1000
_OFFICIAL_INITIAL_STD = 0.01

# In the sum form, like the penalties of `linear_evaluation`.
_FEW_SHOT_PENALTY = 1.0


@dataclass(frozen=True)
class LinearResult:
    """The classifier and the penalty that a linear evaluation chose.

    Attributes:
        model: The classifier to test, for `penalty`.
        penalty: The value with the best hold-out accuracy; among equals the first.
        penalties: (num_values,) float64, in the order in which they were tried: from the largest down, except
            with `compat="official"`.
        holdout_accuracies: (num_values,) float64, per cent, in the order of `penalties`.
    """

    model: Classifier
    penalty: float
    penalties: NDArray[np.float64]
    holdout_accuracies: NDArray[np.float64]


def linear_evaluation(
    train_features: Array | FeatureBatches,
    train_labels: Array | None = None,
    *,
    validation: FeatureBatches | None = None,
    holdout_fraction: float = 0.2,
    holdout_size: int | None = None,
    seed: int = 0,
    num_values: int = 45,
    min_penalty: float = 1e-6,
    max_penalty: float = 1e5,
    refit: bool = True,
    num_classes: int | None = None,
    compat: Literal["official"] | None = None,
) -> LinearResult:
    """Choose the penalty on a hold-out and fit the classifier with it.

    Args:
        train_features: (N, D) floating point, tensor (on any device, where the work is then done) or array. Features
            that do not fit in memory come as batches: each step of a search is then one pass over them, and the result
            is the same up to rounding.
        train_labels: (N,) integers from 0. Batches bring their own.
        validation: Features and labels that choose the penalty in place of a hold-out, in the precision of
            `train_features`. The classifier is then fitted to all of the training split, and never to these.
        holdout_fraction: Share of each class that is held out, in (0, 1), rounded to whole samples; every
            class keeps at least one sample to train on.
        holdout_size: Number of samples held out, in place of the share. docs/recipes.md lists the paper's.
        seed: Seed of the hold-out's draw, which is the same for the same labels.
        num_values: Number of penalties.
        min_penalty: Smallest penalty, positive.
        max_penalty: Largest penalty.
        refit: Whether the final classifier is fitted on all of the training split (the default, as SimCLR
            does) or on the part that was not held out (as the official code does). With `validation` nothing is held
            out, and both are the same.
        num_classes: Number of classes; by default one more than the largest label.
        compat: "official" for the official code's objective and optimiser (`_official_models`), in float32 and in
            memory. Penalties are then its weights w, which are tried from the smallest up. The classifier that did
            best on the hold-out is kept as it was then, and is not fitted again.

    Returns:
        The classifier, its penalty, and the accuracy on the hold-out along the path.

    Raises:
        InputError: Features are not finite, labels are out of range, a class has no sample, no sample can be held
            out, or the official optimiser diverged before any classifier was of use.
    """
    is_streamed = isinstance(train_features, FeatureBatches)
    if isinstance(train_features, FeatureBatches):
        assert compat is None, "the official code's solver has no streaming"
        batches = train_features
    else:
        assert train_labels is not None, "only FeatureBatches bring their own labels"
        rows = torch.as_tensor(train_features)
        features, labels = as_checked(rows if compat is None else rows.float(), train_labels, "train_")
        whole = features, labels.to(features.device, torch.int64)
        batches = FeatureBatches(lambda: iter([whole]))
    all_labels = batches.labels()
    classes = int(all_labels.max()) + 1 if num_classes is None else num_classes
    if validation is not None:
        kept_batches, held_batches = batches, validation
    else:
        _, held = stratified_holdout(all_labels.numpy(), fraction=holdout_fraction, size=holdout_size, seed=seed)
        is_held = torch.zeros(len(all_labels), dtype=torch.bool)
        is_held[held] = True
        kept_batches, held_batches = batches.select(~is_held), batches.select(is_held)
    if not is_streamed:
        cut_out = list(held_batches.read())  # once, and not for the model of each penalty
        held_batches = FeatureBatches(lambda: iter(cut_out))
    if compat == "official":
        penalties = np.geomspace(min_penalty, max_penalty, num_values)
        return _official_result(kept_batches, held_batches, classes, penalties, seed)
    penalties = np.geomspace(max_penalty, min_penalty, num_values)
    # Models along the path are compared by their accuracy only; float32 is twice as fast.
    is_double = next(iter(batches.read()))[0].dtype == torch.float64
    dtype = torch.float64 if is_double else torch.float32
    fitted = batches if refit else kept_batches
    return _exact_result(kept_batches, held_batches, fitted, classes, penalties, dtype, is_streamed=is_streamed)


def _exact_result(
    kept: FeatureBatches,
    held_out: FeatureBatches,
    fitted: FeatureBatches,
    num_classes: int,
    penalties: NDArray[np.float64],
    dtype: torch.dtype,
    *,
    is_streamed: bool,
) -> LinearResult:
    """Choose the penalty of the exact solution by `held_out`, and fit the classifier to `fitted` with it.

    The path to that penalty is computed on `kept` in `dtype`, the last fit in float64.
    """

    def problem_of(chosen: FeatureBatches, dtype: torch.dtype) -> LogisticProblem | StreamedProblem:
        if is_streamed:
            return StreamedProblem(chosen, num_classes, dtype)
        return LogisticProblem(*next(chosen.read()), num_classes, dtype)  # all rows, since they are in memory

    # The problem has no name here, so that the exhausted path frees its copy of the features before the exact fit.
    path = solution_path(problem_of(kept, dtype), penalties.tolist(), tolerance=PATH_TOLERANCE)
    best, best_model, accuracies = _best_of(path, held_out)
    penalty = float(penalties[best])
    exact = problem_of(fitted, torch.float64)
    return LinearResult(next(solution_path(exact, [penalty], initial=best_model)), penalty, penalties, accuracies)


def _best_of(path: Iterable[Classifier], held_out: FeatureBatches) -> tuple[int, Classifier, NDArray[np.float64]]:
    """Return the index of the first of the best models, that model, and the accuracies of all models in per cent."""
    accuracies: list[float] = []
    best: tuple[int, Classifier] | None = None
    for index, model in enumerate(path):
        right = torch.cat([_is_right(model, features, labels) for features, labels in held_out.read()])
        accuracies.append(100.0 * float(right.to(torch.float64).mean()))
        if best is None or accuracies[index] > accuracies[best[0]]:
            best = index, model
    assert best is not None, "there is no penalty"
    return *best, np.array(accuracies)


def accuracy(model: Classifier, features: Array, labels: Array) -> float:
    """Return the share of right predictions in per cent.

    Args:
        model: The classifier.
        features: (N, D) floating point.
        labels: (N,) integers; a label that the model does not know counts as an error.

    Raises:
        InputError: Features are empty or not finite, or labels do not fit them.
    """
    return 100.0 * float(_is_right(model, features, labels).to(torch.float64).mean())


def classwise_accuracy(model: Classifier, features: Array, labels: Array) -> NDArray[np.float64]:
    """Return the accuracy in per cent of each class, (C,), with NaN for a class without samples.

    Args:
        model: The classifier.
        features: (N, D) floating point.
        labels: (N,) integers.

    Raises:
        InputError: As for `accuracy`.
    """
    right = _is_right(model, features, labels).cpu().numpy()
    truth = torch.as_tensor(labels).cpu().numpy()
    of_class = [right[truth == label] for label in range(len(model.bias))]
    return np.array([100.0 * hits.mean() if hits.size else np.nan for hits in of_class])


def _is_right(model: Classifier, features: Array, labels: Array) -> Tensor:
    rows, truth = as_checked(features, labels)
    return model.predict(rows) == truth.to(rows.device)


def stratified_holdout(
    labels: NDArray[np.integer], *, fraction: float = 0.2, size: int | None = None, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw the same share of each class, without replacement, as hold-out.

    Args:
        labels: (N,) class of each sample.
        fraction: Share in (0, 1), rounded to whole samples of a class; a class is never emptied.
        size: Number of samples held out in all, in place of the share. Each class gives in proportion to
            its samples, as far as whole samples and the rule that no class is emptied allow.
        seed: Seed of the draw.

    Returns:
        Sorted indices of the samples kept, and of those held out.

    Raises:
        InputError: The share or the number is out of range, or so small that nothing is held out.
    """
    classes, counts = np.unique(labels, return_counts=True)
    numbers = _shares(counts, fraction) if size is None else _apportion(counts, size)
    generator = np.random.default_rng(seed)
    held = np.zeros(len(labels), dtype=bool)
    for label, number in zip(classes, numbers, strict=True):
        held[generator.permutation(np.flatnonzero(labels == label))[:number]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def _shares(counts: NDArray[np.int64], fraction: float) -> NDArray[np.int64]:
    """Return the number of samples held out per class, for a share."""
    if not 0.0 < fraction < 1.0:
        problem = "must lie between 0 and 1"
        raise InputError("holdout_fraction", fraction, problem, "Give a share such as 0.2.")
    numbers = np.minimum(np.rint(fraction * counts).astype(np.int64), counts - 1)
    if not numbers.any():
        problem = f"holds out none of {counts.sum()} samples"
        raise InputError("holdout_fraction", fraction, problem, "Give a larger share, or more images.")
    return numbers


def _apportion(counts: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the number of samples held out per class, `size` in all, by largest remainders."""
    most = int((counts - 1).sum())
    if not 1 <= size <= most:
        problem = f"must lie in 1 to {most}: {counts.sum()} samples less one for each of {len(counts)} classes"
        raise InputError("holdout_size", size, problem, "Give a smaller number, or holdout_fraction.")
    quotas = size * counts / counts.sum()
    numbers = np.minimum(np.floor(quotas).astype(np.int64), counts - 1)
    while numbers.sum() < size:
        lacking = np.where(numbers < counts - 1, quotas - numbers, -np.inf)
        numbers[int(lacking.argmax())] += 1
    return numbers


def _official_result(
    kept: FeatureBatches, held_out: FeatureBatches, num_classes: int, penalties: NDArray[np.float64], seed: int
) -> LinearResult:
    """Choose among the official code's classifiers; arguments are those of `_official_models` and `_best_of`."""
    models = _official_models(*next(kept.read()), num_classes, penalties, seed)
    best, model, accuracies = _best_of(models, held_out)
    if not bool(torch.isfinite(model.weight).all()):
        remedy = "Leave compat out: the exact solver has a line search."
        raise InputError("compat", "official", "its optimiser diverged on these features", remedy)
    return LinearResult(model, float(penalties[best]), penalties, accuracies)


def _official_models(
    features: Tensor, labels: Tensor, num_classes: int, penalties: NDArray[np.float64], seed: int
) -> Iterator[Classifier]:
    """Yield the classifier for each weight w of the penalty, as the official code fits it.

    It differs from the exact solution in its objective and in how far its optimiser gets. The penalty weighs the mean
    of the squares of all weights, and that of the biases, against the mean cross-entropy:

        mean_i CE_i + w / 2 * (mean(W^2) + mean(b^2)).

    Without the term of the biases that is `penalty = w * N / (C * D)` in the sum form, and scikit-learn's inverse
    penalty `C * D / (w * N)`.

    One classifier and one optimiser, PyTorch's L-BFGS of step length 1 without a line search, go through the values of
    w. Each fit starts from the last one's weights, in float32, on features as they are. Where the features are badly
    conditioned, a fit may stop short of its minimum.

    Args:
        features: (N, D) float32.
        labels: (N,) int64.
        num_classes: C.
        penalties: Values of w.
        seed: Seed of the initial weights.

    Source:
        official-implementation §2, "Linear eval".
    """
    count_classes(labels, num_classes)
    classifier = nn.Linear(features.shape[1], num_classes)
    generator = torch.Generator().manual_seed(seed)
    for parameter in classifier.parameters():
        nn.init.normal_(parameter, std=_OFFICIAL_INITIAL_STD, generator=generator)
    classifier = classifier.to(features.device)
    optimizer = torch.optim.LBFGS(classifier.parameters(), max_iter=OFFICIAL_MAX_ITERATIONS)

    def loss(penalty: float) -> float:
        optimizer.zero_grad()
        value = nn.functional.cross_entropy(classifier(features), labels)
        value = value + 0.5 * penalty * sum(parameter.square().mean() for parameter in classifier.parameters())
        value.backward()  # type: ignore[no-untyped-call]
        return value.item()

    for penalty in penalties.tolist():
        optimizer.step(partial(loss, penalty))  # type: ignore[no-untyped-call]
        weight, bias = (parameter.detach().double() for parameter in (classifier.weight, classifier.bias))  # copies
        yield Classifier(weight, bias - bias.mean())


def few_shot_error(features: Array, labels: Array, *, num_shots: int, seed: int) -> float:
    """Fit a classifier to a few images of each class and measure it on all others.

    The classifier is logistic regression with a fixed penalty, because there is no hold-out that could choose one. With
    one shot of each of two classes the penalty does not matter: by symmetry the boundary is the plane half-way between
    the two, and the classifier chooses the nearest shot by the ℓ2 distance.

    Args:
        features: (N, D) floating point.
        labels: (N,) integers from 0, at least two classes without a gap.
        num_shots: Images of each class that are shown, at least 1.
        seed: Seed of the draw.

    Returns:
        Share of the other images that are classified wrongly, in per cent, with equal weight per image.

    Raises:
        InputError: Features are not finite, labels do not fit, or a class has no image beside its shots.
    """
    rows, classes = as_checked(features, labels)
    truth = classes.cpu().numpy()
    shown = draw_shots(truth, num_shots=num_shots, seed=seed)
    rest = np.setdiff1d(np.arange(len(truth)), shown)
    problem = LogisticProblem(rows[shown].double(), classes[shown], int(truth.max()) + 1, torch.float64)
    model = next(solution_path(problem, [_FEW_SHOT_PENALTY], tolerance=1e-6))
    predicted = model.predict(rows[rest].double()).cpu().numpy()
    return 100.0 * float((predicted != truth[rest]).mean())


def draw_shots(labels: NDArray[np.integer], *, num_shots: int, seed: int) -> NDArray[np.int64]:
    """Draw images of each class, without replacement.

    Returns:
        Sorted indices, `num_shots` of each class.

    Raises:
        InputError: A class has no image left beside them.
    """
    generator = np.random.default_rng(seed)
    shown = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        if len(members) <= num_shots:
            problem = f"leaves no image to classify of a class that has {len(members)}"
            raise InputError("num_shots", num_shots, problem, "Lower it, or give more images.")
        shown.append(generator.permutation(members)[:num_shots])
    return np.sort(np.concatenate(shown))


def mean_and_std(results: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return mean and standard deviation of each number over results of the same shape.

    Args:
        results: One nested mapping for each seed, whose leaves are numbers.

    Returns:
        Two mappings in the same shape. The standard deviation is that of a sample (divisor n - 1), and 0 for
        a single result.

    Raises:
        ValueError: There is no result, two differ in their keys, or a leaf is not a number.
    """
    if not results:
        raise ValueError("there is no result to summarise")
    means: dict[str, Any] = {}
    deviations: dict[str, Any] = {}
    for result in results[1:]:
        if result.keys() != results[0].keys():
            raise ValueError(f"results differ in their keys: {sorted(results[0])} and {sorted(result)}")
    for key in results[0]:
        values = [result[key] for result in results]
        if all(isinstance(value, Mapping) for value in values):
            means[key], deviations[key] = mean_and_std(values)
        elif all(isinstance(value, int | float) for value in values):
            means[key] = statistics.fmean(values)
            deviations[key] = statistics.stdev(values) if len(values) > 1 else 0.0
        else:
            raise ValueError(f"{key} is not a number in each result: {values}")
    return means, deviations


class PairedDifference(NamedTuple):
    """The difference of two trainings over the same seeds.

    Attributes:
        by_seed: Difference for each seed.
        mean: Mean over the seeds.
        std: Standard deviation of the sample of differences (divisor n - 1), and 0 for a single seed. It is small where
            both trainings share what a seed does, however much their own numbers vary.
    """

    by_seed: tuple[float, ...]
    mean: float
    std: float


def paired_difference(after: Sequence[float], before: Sequence[float]) -> PairedDifference:
    """Return the differences of two trainings' numbers, which are given for the same seeds in the same order."""
    by_seed = tuple(one - other for one, other in zip(after, before, strict=True))
    mean, std = mean_and_std([{"difference": difference} for difference in by_seed])
    return PairedDifference(by_seed, mean["difference"], std["difference"])


def paired_differences(
    after: Sequence[Mapping[str, float]], before: Sequence[Mapping[str, float]]
) -> dict[str, PairedDifference]:
    """Return the differences of two trainings' numbers by name.

    Args:
        after: Numbers of one training by name, one mapping per seed.
        before: Those of the other training for the same seeds in the same order, with the same names.
    """
    return {name: paired_difference([one[name] for one in after], [one[name] for one in before]) for name in after[0]}


def bg_gap(accuracies: Mapping[str, float]) -> float:
    """Return BG-Gap: the loss of accuracy when the background no longer fits the object's class.

    Source:
        Backgrounds Challenge (Xiao et al., 2021).

    Args:
        accuracies: Accuracy of each variant; `mixed_same` and `mixed_rand` must be among them.

    Returns:
        Accuracy on `mixed_same` less that on `mixed_rand`, in the unit of the accuracies.

    Raises:
        InputError: One of the two is missing.
    """
    for variant in ("mixed_same", "mixed_rand"):
        if variant not in accuracies:
            remedy = "Evaluate on both mixed_same and mixed_rand."
            raise InputError("accuracies", sorted(accuracies), f"lack {variant}", remedy)
    return accuracies["mixed_same"] - accuracies["mixed_rand"]


def shift_result(accuracies: Mapping[str, float]) -> dict[str, float]:
    """Combine the accuracies of one classifier on the test sets of a shift into gap and means.

    Args:
        accuracies: By test set. Names like `gaussian_noise-3` are a corruption at a severity from 1 to 5; `mixed_same`
            and `mixed_rand` make the BG-Gap. A given `bg_gap` is not a test set and is left out.

    Returns:
        The accuracies by test set, then `bg_gap` if both of its variants are among them, and the mean over the
        severities by corruption, in the paper's order, with `corruption_mean` over them (the paper's ImageNet-C-9).

    Raises:
        InputError: Corruptions differ in their severities, so that their means could not be compared.
    """
    cells: dict[str, float] = {}
    severities: dict[str, dict[int, float]] = {}
    for name, accuracy in accuracies.items():
        found = _SEVERITY.fullmatch(name)
        if found is not None:
            severities.setdefault(found["corruption"], {})[int(found["severity"])] = accuracy
        elif name != "bg_gap":
            cells[name] = accuracy
    if len({frozenset(of_one) for of_one in severities.values()}) > 1:
        shown = {corruption: sorted(of_one) for corruption, of_one in severities.items()}
        raise InputError(
            "tests", shown, "have different severities", "Give each corruption the same severities, such as 1 to 5."
        )
    if {"mixed_same", "mixed_rand"} <= cells.keys():
        cells["bg_gap"] = bg_gap(cells)
    # The paper's corruptions in the paper's order, and others after them by name.
    order = {corruption: place for place, corruption in enumerate(CORRUPTIONS)}
    ordered = sorted(severities, key=lambda corruption: (order.get(corruption, len(order)), corruption))
    corruptions = {corruption: statistics.fmean(severities[corruption].values()) for corruption in ordered}
    mean = {"corruption_mean": statistics.fmean(corruptions.values())} if corruptions else {}
    return {**cells, **corruptions, **mean}


def shift_over_seeds(results: Sequence[Mapping[str, float]]) -> tuple[dict[str, float], dict[str, float]]:
    """Return mean and standard deviation of each cell over classifiers of several seeds.

    The BG-Gap and the means over corruptions are computed per seed first; their deviation is that of these values.

    Args:
        results: One mapping per seed, as for `shift_result`.

    Returns:
        Mean and standard deviation (divisor n - 1; 0 for one seed) by cell, in the order of `shift_result`.

    Raises:
        InputError: `shift_result` refuses one, or the seeds were not measured on the same test sets.
    """
    cells = [shift_result(result) for result in results]
    for one in cells[1:]:
        if one.keys() != cells[0].keys():
            unlike = sorted(one.keys() ^ cells[0].keys())
            remedy = "Evaluate all checkpoints on the same test sets."
            raise InputError("tests", unlike, "are test sets of some checkpoints and not of others", remedy)
    return mean_and_std(cells)
