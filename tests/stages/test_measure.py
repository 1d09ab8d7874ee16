"""The evaluations' work on small data."""

from __future__ import annotations

import torch

from objectaware.stages.measure import _among


def test_classes_are_numbered_by_those_that_were_shown() -> None:
    known = torch.tensor([2, 5, 9])
    places = _among(known, torch.tensor([9, 2, 3, 12, 5, 0]))
    assert places.tolist() == [2, 0, 3, 3, 1, 3]
    assert _among(known, known).tolist() == [0, 1, 2]
