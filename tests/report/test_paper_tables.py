"""What the commands about the paper print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from objectaware.cli import run
from objectaware.data.scenes import build_scenes
from objectaware.paper import TABLE_LABELS, load_figures, load_table
from objectaware.report.tables import format_paper_table


def test_the_list_names_every_table_and_figure_with_its_data_and_what_is_missing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    build_scenes(tmp_path / "scenes", variant="single-object", num_train=9, num_val=9, image_size=32)
    (tmp_path / "sets.yaml").write_text(
        f"ImageNet-9: {tmp_path / 'scenes'}\nBackgrounds Challenge: {tmp_path / 'scenes'}\n"
    )
    place = ["--data", str(tmp_path / "data"), "--datasets", str(tmp_path / "sets.yaml")]
    assert run(["reproduce", "list", *place, "--json", str(tmp_path / "list.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines[::3][:39]]
    assert names == [*TABLE_LABELS, *(f"figure:{figure.label}" for figure in load_figures())]
    assert next(line for line in lines if line.startswith("multi-imagenet ")).endswith("a tenth of ImageNet")
    assert lines[1].split(maxsplit=1) == ["data:", "CUB-200-2011, Flowers102, COCO, ImageNet-9"]
    written = json.loads((tmp_path / "list.json").read_text())
    assert [entry["name"] for entry in written] == names
    assert written[6]["trainings"] == list(load_table("bg-main").trainings)
    assert written[6]["missing"] == []
    assert lines[3 * 6 + 2].strip() == "can run: all of it is here"
    missing = {entry["name"]: entry["missing"] for entry in written}
    assert missing["multi-bias"] == ["COCO", "COCO-Crop"]
    assert missing["figure:bg-challenge"] == []
    assert missing["figure:loc-saliency"] == ["ImageNet", "MoCo v2 ResNet-50 (ImageNet)"]


def test_a_table_is_shown_with_deviations_gains_and_misprints(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "show", "bg-domain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith("BYOL    +CutMix"))
    assert row.split("  ")[-1].strip() == "29.68 ± 0.39 (+1.06)"
    assert "46.07 ± 0.05 (+0.92)" in row
    assert "misprinted in the paper: the gain of BYOL, +CutMix, ImageNet-Sketch-9 as +1.39" in lines
    assert "trainings behind a number: 3" in lines


def test_columns_with_two_headers_and_missing_cells_are_aligned() -> None:
    lines = format_paper_table(load_table("multi-supervised-det")).splitlines()
    models, crops, detection, segmentation = lines[3], lines[4], lines[6], lines[7]
    assert models.split() == ["MoCov2"] * 3 + ["BYOL"] * 3 + ["Faster", "R-CNN", "Mask", "R-CNN"]
    assert crops.split() == ["Task", "-", "CAM", "GT", "-", "CAM", "GT", "-", "-"]
    assert detection.split()[-2:] == ["37.0", "37.9"]
    assert segmentation.split()[-2:] == ["–", "34.6"]
    assert len({len(line) for line in (models, crops, detection, segmentation)}) == 1


@pytest.mark.parametrize("label", TABLE_LABELS)
def test_every_table_can_be_shown(label: str) -> None:
    table = load_table(label)
    shown = format_paper_table(table)
    assert shown.startswith(f"{label}: ")
    for cell in table.cells().values():
        assert cell is None or f"{cell.mean:.{table.num_digits}f}" in shown


def test_a_table_is_written_as_data_with_its_gains(tmp_path: Path) -> None:
    assert run(["reproduce", "show", "bg-main", "--json", str(tmp_path / "table.json")]) == 0
    written = json.loads((tmp_path / "table.json").read_text())
    assert written["rows"][0] == {
        "name": ["Original"],
        "cells": [[89.17, 0.49], [90.73, 0.05], [89.69, 0.14], [87.3, 0.61], [89.3, 0.02], [90.95, 0.33]],
    }
    assert written["gains"][0] == {"row": ["Original"], "column": ["MoCov2", "BG-Mixup (CAM)"], "gain": 1.56}


def test_an_unknown_table_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "show", "bg-mian"]) == 2
    assert "table = bg-mian: is not a table of the paper" in capsys.readouterr().err
