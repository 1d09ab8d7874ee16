"""Classes matched by name, and what an accuracy is over."""

from __future__ import annotations

import numpy as np
import pytest

from objectaware.errors import InputError
from objectaware.evaluate.coverage import (
    Coverage,
    coverage_columns,
    coverage_notices,
    list_names,
    match_labels,
    shown_classes,
)


def test_labels_are_matched_by_name_whatever_their_numbers() -> None:
    labels = np.array([0, 1, 2, 0, -1, 2])
    assert match_labels(labels, ["bee", "cat", "yak"], ["ant", "bee", "cat"]).tolist() == [1, 2, -1, 1, -1, -1]
    assert match_labels(labels, ["c", "b", "a"], ["a", "b", "c"]).tolist() == [2, 1, 0, 2, -1, 0]


def test_training_knows_the_classes_that_it_shows() -> None:
    assert shown_classes("train", np.array([3, 1, -1, 3]), ["a", "b", "c", "d"]) == ("b", "d")


def test_one_class_alone_and_two_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="train = b: shows only one class"):
        shown_classes("train", np.array([1, 1, -1]), ["a", "b"])
    with pytest.raises(InputError, match="train = crane: is the name of two classes"):
        shown_classes("train", np.array([0, 1, 2]), ["crane", "dog", "crane"])
    # A second class of that name without a sample is in nobody's way.
    assert shown_classes("train", np.array([0, 1]), ["crane", "dog", "crane"]) == ("crane", "dog")


def test_what_training_does_not_know_is_left_out_and_named() -> None:
    coverage = Coverage.of("tests.val", ["b", "b", "yak", "emu", "yak"], ["a", "b"], left_out={"unreadable": 4, "x": 0})
    assert coverage.values() == {
        "num_samples": 2,
        "num_classes": 1,
        "left_out": {"unreadable": 4, "class unknown to training": 3},
        "unknown_classes": {"emu": 1, "yak": 2},
        "untested_classes": ["a"],
    }
    assert coverage_columns(coverage.values()) == {"samples": 2, "classes": 1, "left out": 7}
    (notice,) = coverage_notices({"val": coverage.values()})
    assert notice == (
        "val: measured over 2 samples of 1 class; 4 left out (unreadable); 3 left out (class unknown to training); "
        "training does not know emu, yak; no sample shows a"
    )


def test_nothing_is_said_of_a_set_that_is_measured_whole_unless_it_is_one_class() -> None:
    assert coverage_notices({"val": Coverage.of("t", ["a", "b"], ["a", "b"]).values()}) == []
    assert coverage_notices({"val": Coverage(4, 1).values()}) == ["val: measured over 4 samples of 1 class"]
    assert coverage_notices({"masks": Coverage(4).values()}) == []


def test_nothing_in_common_is_refused() -> None:
    with pytest.raises(InputError, match=r"tests\.val = x, y: has no class in common with training, which knows a, b"):
        Coverage.of("tests.val", ["x", "y"], ["a", "b"])


def test_many_names_are_cut_short() -> None:
    assert list_names(["a", "b"]) == "a, b"
    assert list_names(list("abcdefg")) == "a, b, c, d, e, … (7 in all)"
