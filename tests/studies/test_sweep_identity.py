"""What makes a sweep another one, so that trials that have ended are not taken for its own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from objectaware.errors import InputError
from objectaware.studies.sweep import sweep_identity
from objectaware.studies.sweep_config import SweepConfig, check_sweep
from tiny_sweep import sweep_fields


@pytest.fixture
def fields(tmp_path: Path) -> dict[str, Any]:
    """A sweep over a folder of photos, in which a stage is called as a field with an address is."""
    photos = tmp_path / "photos"
    photos.mkdir()
    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(photos / "0.png")
    stages = {
        "masks": {"stage": "pretrain", "fields": {"data": {"root": str(photos)}, "batch_size": 16}},
        "found": {"stage": "localize", "fields": {"data": {"root": str(photos)}, "checkpoint": {"from": "masks"}}},
    }
    return sweep_fields(
        stages=stages,
        parameters={"found.localizer.num_iterations": [1, 2]},
        metric="found.num_ok",
        columns={},
    )


def _identity_of(fields: dict[str, Any]) -> str:
    config = SweepConfig.model_validate(fields)
    return sweep_identity(config, check_sweep(config), verify=False)


def _set(*path: str, value: Any) -> Callable[[dict[str, Any], Path], None]:
    def change(fields: dict[str, Any], folder: Path) -> None:
        place = fields
        for part in path[:-1]:
            place = place.setdefault(part, {})
        place[path[-1]] = value

    return change


def _another_photo(fields: dict[str, Any], folder: Path) -> None:
    Image.fromarray(np.ones((40, 40, 3), np.uint8)).save(folder / "photos" / "1.png")


@pytest.mark.parametrize(
    "change",
    [
        _set("stages", "masks", "fields", "batch_size", value=32),
        _set("parameters", "found.localizer.num_iterations", value=[1, 2, 3]),
        _set("seeds", value=[1]),
        _set("columns", "failed", value="found.num_failed"),
        _another_photo,
    ],
)
def test_what_decides_results_makes_another_sweep(
    change: Callable[[dict[str, Any], Path], None], fields: dict[str, Any], tmp_path: Path
) -> None:
    before, changed = _identity_of(fields), copy.deepcopy(fields)
    change(changed, tmp_path)
    assert _identity_of(changed) != before


@pytest.mark.parametrize(
    "change",
    [
        _set("execution", value={"max_concurrent": 3}),
        _set("stages", "masks", "fields", "execution", value={"num_workers": 2}),
        _set("plot", value="found.localizer.num_iterations"),
    ],
)
def test_how_it_runs_and_is_shown_does_not(
    change: Callable[[dict[str, Any], Path], None], fields: dict[str, Any], tmp_path: Path
) -> None:
    before = _identity_of(fields)
    change(fields, tmp_path)
    assert _identity_of(fields) == before


def test_a_checkpoint_from_outside_counts_by_its_content(
    fields: dict[str, Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    fields["stages"]["found"]["fields"]["checkpoint"] = str(tmp_path / "missing")
    with pytest.raises(InputError, match="missing"):
        _identity_of(fields)
    fields["stages"]["found"]["fields"]["checkpoint"] = str(tiny_checkpoint)
    assert _identity_of(fields) == _identity_of(fields)


def test_a_file_that_an_option_names_counts_by_its_content(fields: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "classifier").write_bytes(b"one")
    localizer = {"name": "classifier_cam", "classifier": str(tmp_path / "classifier")}
    fields["stages"]["found"]["fields"]["localizer"] = localizer
    fields["parameters"] = {"found.localizer.expansion": [1, 2]}
    before = _identity_of(fields)
    assert _identity_of(fields) == before
    (tmp_path / "classifier").write_bytes(b"another")
    assert _identity_of(fields) != before
