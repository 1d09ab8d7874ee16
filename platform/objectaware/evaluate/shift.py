"""Accuracies put together: over seeds, over backgrounds, and over corruptions."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from objectaware.data.sets.imagenet_shifts import CORRUPTIONS as CORRUPTIONS_BY_KIND
from objectaware.errors import InputError

VARIANTS = (
    "original",
    "only_bg_b",
    "only_bg_t",
    "no_fg",
    "only_fg",
    "mixed_same",
    "mixed_rand",
    "mixed_next",
)
"""The variants in the order of the paper's table `bg-main` (with its row `no_fg`, left out in print)."""

CORRUPTIONS = tuple(corruption for kind in CORRUPTIONS_BY_KIND.values() for corruption in kind)
"""ImageNet-C's corruptions (Hendrycks & Dietterich, 2019), in the order of the paper's table `bg-imagenetc`."""

_SEVERITY = re.compile(r"(?P<corruption>[\w ]+)-(?P<severity>[1-5])")


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


@dataclass(frozen=True)
class ShiftResult:
    """The accuracies of one classifier on the test sets of a shift, in per cent.

    Attributes:
        accuracies: Accuracy by test set, without the severities of corruptions.
        bg_gap: Mixed-Same less Mixed-Rand; None if one of the two is missing.
        corruptions: Mean over the severities, by corruption.
        corruption_mean: Mean over the corruptions, the paper's ImageNet-C-9; None where there is none.
    """

    accuracies: dict[str, float]
    bg_gap: float | None
    corruptions: dict[str, float]
    corruption_mean: float | None

    def cells(self) -> dict[str, float]:
        """Return all numbers in one row: test sets, then `bg_gap`, corruptions, and `corruption_mean`, if present."""
        cells = dict(self.accuracies)
        if self.bg_gap is not None:
            cells["bg_gap"] = self.bg_gap
        cells |= self.corruptions
        if self.corruption_mean is not None:
            cells["corruption_mean"] = self.corruption_mean
        return cells


def shift_result(accuracies: Mapping[str, float]) -> ShiftResult:
    """Combine the accuracies of one classifier into gap and means.

    Args:
        accuracies: By test set. Names like `gaussian_noise-3` are a corruption at a severity from 1 to 5; `mixed_same`
            and `mixed_rand` make the BG-Gap. A given `bg_gap` is not a test set and is left out.

    Raises:
        InputError: Corruptions differ in their severities, so that their means could not be compared.
    """
    plain: dict[str, float] = {}
    severities: dict[str, dict[int, float]] = {}
    for name, accuracy in accuracies.items():
        found = _SEVERITY.fullmatch(name)
        if found is not None:
            severities.setdefault(found["corruption"], {})[int(found["severity"])] = accuracy
        elif name != "bg_gap":
            plain[name] = accuracy
    if len({frozenset(of_one) for of_one in severities.values()}) > 1:
        shown = {corruption: sorted(of_one) for corruption, of_one in severities.items()}
        raise InputError("tests", shown, "have unlike severities", "Give each corruption the same, 1 to 5 for all.")
    corruptions = {name: statistics.fmean(of_one.values()) for name, of_one in severities.items()}
    has_gap = {"mixed_same", "mixed_rand"} <= plain.keys()
    return ShiftResult(
        plain,
        bg_gap(plain) if has_gap else None,
        {name: corruptions[name] for name in sorted(corruptions, key=_paper_place)},
        statistics.fmean(corruptions.values()) if corruptions else None,
    )


def shift_over_seeds(results: Sequence[Mapping[str, float]]) -> tuple[dict[str, float], dict[str, float]]:
    """Return mean and standard deviation of each cell over classifiers of several seeds.

    The BG-Gap and the means over corruptions are computed per seed first; their deviation is that of these values.

    Args:
        results: One mapping per seed, as for `shift_result`.

    Returns:
        Mean and standard deviation (divisor n - 1; 0 for one seed) by cell, in the order of `ShiftResult.cells`.

    Raises:
        InputError: `shift_result` refuses one, or the seeds were not measured on the same test sets.
    """
    cells = [shift_result(result).cells() for result in results]
    for one in cells[1:]:
        if one.keys() != cells[0].keys():
            unlike = sorted(one.keys() ^ cells[0].keys())
            remedy = "Measure all of them on the same."
            raise InputError("tests", unlike, "are test sets of some checkpoints and not of others", remedy)
    return mean_and_std(cells)


def _paper_place(corruption: str) -> tuple[int, str]:
    """Sort the paper's corruptions in the paper's order, and others after them by name."""
    place = CORRUPTIONS.index(corruption) if corruption in CORRUPTIONS else len(CORRUPTIONS)
    return place, corruption
