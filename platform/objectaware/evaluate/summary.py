"""Mean and deviation of results over several seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any


def mean_and_std(results: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns mean and standard deviation of each number over results of the same shape.

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
