"""The paper's tables as data: what they say and what is computed from them."""

from __future__ import annotations

import pytest

from objectaware.errors import InputError
from objectaware.paper import TABLE_LABELS, Cell, Table, gains, load_figures, load_table


def _table(**fields: object) -> Table:
    given = {
        "label": "x",
        "caption": "x",
        "measure": "accuracy",
        "unit": "%",
        "num_digits": 1,
        "better": "higher",
        "num_trials": 1,
        "datasets": ["COCO"],
        "row_headers": ["Model", "Crop"],
        "column_headers": ["Test data set"],
        "columns": [["a"], ["b"]],
        "rows": [{"name": ["m", "-"], "cells": [1.1, None]}, {"name": ["m", "CAM"], "cells": [[2.3, 0.5], 7]}],
        **fields,
    }
    return Table.model_validate(given)


@pytest.mark.parametrize(
    ("label", "row", "column", "expected"),
    [
        ("loc-main", ("ContraCAM (ours)",), ("COCO",), Cell(0.319)),
        ("loc-iter", ("1",), ("ImageNet-9",), Cell(0.090)),
        ("loc-cam-full", ("MoCov2", "ContraCAM (ours)", "✓"), ("CUB",), Cell(64.07)),
        ("multi-main", ("MoCov2", "ResNet-18", "CAM"), ("CIFAR10",), Cell(76.73)),
        ("bg-main", ("Mixed-Rand",), ("MoCov2", "BG-Mixup (CAM)"), Cell(66.89, 0.54)),
        ("bg-main", ("BG-Gap",), ("MoCov2", "Baseline"), Cell(20.64, 0.36)),
        ("bg-domain", ("MoCov2", "+BG-Mixup (ours)"), ("ImageNet-C-9",), Cell(44.39, 0.89)),
        ("multi-supervised-det", ("COCO Segmentation",), ("Faster R-CNN", "-"), None),
        ("bg-imagenetc", ("BYOL", "BG-Mixup (CAM)"), ("Weather", "Fog"), Cell(43.37, 2.23)),
    ],
)
def test_numbers_typed_off_the_paper(
    label: str, row: tuple[str, ...], column: tuple[str, ...], expected: Cell | None
) -> None:
    assert load_table(label).cells()[row, column] == expected


def test_commented_rows_are_left_out() -> None:
    assert ("No-FG",) not in {row.name for row in load_table("bg-main").rows}
    assert len(load_table("bg-domain").rows) == 8


@pytest.mark.parametrize("label", ["bg-main", "bg-more-bg", "bg-soft-hard", "bg-probability"])
def test_the_gap_is_the_difference_that_its_name_says(label: str) -> None:
    """BG-Gap = Mixed-Same − Mixed-Rand (Xiao et al. 2021), up to the rounding of three numbers."""
    cells = {frozenset((*row, *column)): cell for (row, column), cell in load_table(label).cells().items()}
    gaps = [key for key in cells if "BG-Gap" in key]
    assert len(gaps) in (6, 8, 10)
    for key in gaps:
        gap, same, other = (cells[key - {"BG-Gap"} | {name}] for name in ("BG-Gap", "Mixed-Same", "Mixed-Rand"))
        assert gap is not None
        assert same is not None
        assert other is not None
        assert gap.mean == pytest.approx(same.mean - other.mean, abs=0.016)


def test_gains_are_counted_from_the_baseline_of_the_same_group() -> None:
    table = _table(baseline={"Crop": "-"})
    assert gains(table) == {(("m", "CAM"), ("a",)): 1.2}
    assert gains(_table()) == {}
    main = gains(load_table("bg-main"))
    assert main[("Only-BG-T",), ("BYOL", "BG-HardMix (GT)")] == -1.67
    second = gains(load_table("multi-second"))
    assert second[("BYOL", "CAM", "2"), ("CUB",)] == 2.90


def test_the_gains_that_the_paper_misprints_are_computed() -> None:
    domain, dist = gains(load_table("bg-domain")), gains(load_table("bg-more-dist"))
    assert domain[("BYOL", "+Mixup"), ("ImageNet-Sketch-9",)] == 4.97
    assert domain[("BYOL", "+CutMix"), ("ImageNet-Sketch-9",)] == 0.92
    assert dist[("MoCov2", "+BG-HardMix (GT)"), ("Stylized-ImageNet-9",)] == 4.29
    assert dist[("MoCov2", "+BG-HardMix (GT)"), ("ImageNet-R-9",)] == 2.64
    misprinted = {label: len(load_table(label).misprinted_gains) for label in TABLE_LABELS}
    assert {label: number for label, number in misprinted.items() if number} == {"bg-domain": 2, "bg-more-dist": 2}


def test_the_better_direction_is_known_cell_by_cell() -> None:
    main = load_table("bg-main")
    assert main.is_lower_better(("BG-Gap",), ("BYOL", "Baseline"))
    assert not main.is_lower_better(("Original",), ("BYOL", "Baseline"))
    assert load_table("multi-bias-epoch").is_lower_better(("MoCov2",), ("100",))
    assert not load_table("loc-main").is_lower_better(("ContraCAM (ours)",), ("CUB",))


def test_deviations_stand_where_several_trials_were_run() -> None:
    """The paper prints them for three trials, but for one table that repeats the means alone."""
    for label in TABLE_LABELS:
        table = load_table(label)
        has_deviations = all(cell is None or cell.std is not None for cell in table.cells().values())
        assert has_deviations == (table.num_trials == 3 and label != "bg-more-bg"), label


@pytest.mark.parametrize(
    "fields",
    [
        {"columns": [["a"]]},
        {"columns": [["a"], ["a"]]},
        {"column_headers": ["Kind", "Corruption"]},
        {"rows": [{"name": ["m"], "cells": [1, 2]}]},
        {"gains": []},
    ],
)
def test_a_table_that_does_not_fit_together_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        _table(**fields)


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(InputError, match="table = bg-mian"):
        load_table("bg-mian")


def test_labels_are_those_of_the_files() -> None:
    assert all(load_table(label).label == label for label in TABLE_LABELS)
    assert len({figure.label for figure in load_figures()}) == 14
