"""Which samples an accuracy covers: those whose right answer was possible, with classes matched by their names.

Each data set numbers its own classes, so that a missing class folder shifts the numbers behind it. Labels of one data
set are therefore compared with those of another by the class's name alone, in this file. Samples of a class that
training does not know, and samples that cannot be read, are left out of an accuracy and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from objectaware.errors import InputError

UNKNOWN_CLASS = "class unknown to training"
UNREADABLE = "unreadable"
OTHER_CLASS = "of none of the classes that count"
UNTESTED = "class that no sample shows"
_MOST_NAMED = 5


def shown_classes(field: str, labels: NDArray[np.int64], class_names: Sequence[str]) -> tuple[str, ...]:
    """Name the classes that a training set shows, in the order of their numbers.

    Args:
        field: What the user calls the training set.
        labels: Class of each sample (N,) by the set's own numbers; -1 for samples that are left out.
        class_names: Names of all of the set's classes, by number.

    Raises:
        InputError: The samples are of one class alone, or two classes have the same name.
    """
    names = [class_names[label] for label in np.unique(labels[labels >= 0]).tolist()]
    repeated = [name for name, number in Counter(names).items() if number > 1]
    if repeated:
        problem = "is the name of two classes, so that a test set cannot be matched to them"
        raise InputError(field, repeated[0], problem, "Give each class a name of its own.")
    require_two_classes(field, names)
    return tuple(names)


def require_two_classes(field: str, class_names: Sequence[str]) -> None:
    """Refuse a training set that shows fewer than two classes.

    Args:
        field: What the user calls the training set.
        class_names: The classes that it shows.

    Raises:
        InputError: There are fewer than two.
    """
    if len(class_names) < 2:
        problem = "shows only one class, and a classifier needs two"
        raise InputError(field, list_names(class_names), problem, "Give images of at least two classes.")


def match_labels(labels: NDArray[np.int64], class_names: Sequence[str], known: Sequence[str]) -> NDArray[np.int64]:
    """Renumber the labels of a data set by the names of the classes that training knows.

    Args:
        labels: Class of each sample (N,) by the set's own numbers, or a negative number.
        class_names: Names of the set's classes, by number.
        known: Names of training's classes, in the order of the new numbers.

    Returns:
        Index of each sample's class in `known`, (N,); -1 where training does not know the class.
    """
    place_of_name = {name: place for place, name in enumerate(known)}
    # A label of -1 selects the last entry.
    places = np.array([*(place_of_name.get(name, -1) for name in class_names), -1], dtype=np.int64)
    return places[np.maximum(labels, -1)]


@dataclass(frozen=True)
class Coverage:
    """Which samples an accuracy on a test set covers, and which it leaves out.

    Attributes:
        num_samples: Samples that it covers: images, crops or objects.
        num_classes: Classes of these samples; None where classes do not matter.
        left_out: Number of samples that are left out, by reason.
        unknown_classes: Number of samples of each class that training does not know, by name.
        untested_classes: Names of classes that training knows and no sample shows.
    """

    num_samples: int
    num_classes: int | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    unknown_classes: Mapping[str, int] = field(default_factory=dict)
    untested_classes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, test: str, classes: Iterable[str], known: Sequence[str], *, left_out: Mapping[str, int] | None = None
    ) -> Coverage:
        """Count the samples that an accuracy can cover.

        Args:
            test: What the user calls the test set.
            classes: Name of each sample's class.
            known: Names of the classes that training knows.
            left_out: Number of further samples that are left out, by reason.

        Raises:
            InputError: Training knows none of the classes.
        """
        numbers = Counter(classes)
        unknown = {name: number for name, number in sorted(numbers.items()) if name not in set(known)}
        tested = [name for name in known if name in numbers]
        if not tested:
            problem = f"has no class in common with training, which knows {list_names(known)}"
            raise InputError(test, list_names(list(unknown)), problem, "Use the same class names in both.")
        return cls(
            sum(numbers[name] for name in tested),
            len(tested),
            {**(left_out or {}), UNKNOWN_CLASS: sum(unknown.values())},
            unknown,
            tuple(name for name in known if name not in numbers),
        )

    def values(self) -> dict[str, Any]:
        """Return all of it as plain values, for a stage's result."""
        return {
            "num_samples": self.num_samples,
            "num_classes": self.num_classes,
            "left_out": {reason: number for reason, number in self.left_out.items() if number},
            "unknown_classes": dict(self.unknown_classes),
            "untested_classes": list(self.untested_classes),
        }


def coverage_columns(coverage: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of `Coverage.values` as cells of a table."""
    counted = {name: coverage[f"num_{name}"] for name in ("samples", "classes") if coverage[f"num_{name}"] is not None}
    return {**counted, "left out": sum(coverage["left_out"].values())}


def coverage_rows(coverages: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str | int]]:
    """Return one table row per test set and per class, or other reason, that is left out.

    Args:
        coverages: `Coverage.values` by test set.
    """
    rows: list[dict[str, str | int]] = []
    for test, coverage in coverages.items():
        rows.append({"set": test, "samples": "measured", "class": "", "number": coverage["num_samples"]})
        for reason, number in coverage["left_out"].items():
            # Every class that training does not know has a row of its own.
            numbers = coverage["unknown_classes"] if reason == UNKNOWN_CLASS else {"": number}
            rows += [{"set": test, "samples": reason, "class": name, "number": one} for name, one in numbers.items()]
        rows += [
            {"set": test, "samples": UNTESTED, "class": name, "number": 0} for name in coverage["untested_classes"]
        ]
    return rows


def coverage_notices(coverages: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return one line per test set that says which samples or classes its accuracy does not cover.

    Test sets that are covered whole have no line.

    Args:
        coverages: `Coverage.values` by test set.
    """
    return [f"{name}: {notice}" for name, coverage in coverages.items() if (notice := _notice(coverage))]


def _notice(coverage: Mapping[str, Any]) -> str:
    unknown, untested = coverage["unknown_classes"], coverage["untested_classes"]
    parts = [f"{number} left out ({reason})" for reason, number in coverage["left_out"].items()]
    if unknown:
        parts.append(f"training does not know {list_names(list(unknown))}")
    if untested:
        parts.append(f"no sample shows {list_names(untested)}")
    if not parts and coverage["num_classes"] != 1:
        return ""
    classes = coverage["num_classes"]
    of_classes = "" if classes is None else f" of {classes} class{'' if classes == 1 else 'es'}"
    return "; ".join([f"measured over {coverage['num_samples']} samples{of_classes}", *parts])


def list_names(names: Sequence[str]) -> str:
    """List the first few names, followed by the number of all names if there are more."""
    listed = ", ".join(names[:_MOST_NAMED])
    return listed if len(names) <= _MOST_NAMED else f"{listed}, … ({len(names)} in all)"
