from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from PIL import Image

from objectaware.cli import run
from objectaware.config import Layout
from objectaware.data import catalog
from objectaware.data.catalog import find_layouts
from objectaware.data.layouts import LAYOUTS
from objectaware.data.scenes import build_scenes


def test_every_layout_that_a_recipe_takes_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert {layout.name for layout in LAYOUTS} == set(get_args(Layout)) == set(catalog._OPEN)
    assert run(["data", "list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in get_args(Layout))


def test_a_folder_of_photos_has_one_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    found = {one.layout: one for one in find_layouts(tmp_path)}
    assert found["folder"].num_images == 1
    assert all(one.problem for name, one in found.items() if name != "folder")
    assert "no class folders" in found["class-folders"].problem
    num_others = len(found) - 1
    assert run(["data", "list", str(tmp_path)]) == 0
    first, rest = capsys.readouterr().out.splitlines()
    assert first.split() == ["folder", "1", "images"]
    assert rest == f"none of {num_others} other layouts; --reasons says why"
    assert run(["data", "list", str(tmp_path), "--reasons"]) == 0
    first, *reasons = capsys.readouterr().out.splitlines()
    assert first.split() == ["folder", "1", "images"]
    assert len(reasons) == num_others
    assert all("no: " in reason for reason in reasons)


def test_splits_and_variants_are_told_apart(tmp_path: Path) -> None:
    build_scenes(tmp_path, variant="single-object", num_train=18, num_val=9, image_size=48)
    sets = {(one.split, one.variant): one.num_images for one in find_layouts(tmp_path) if "back" in one.layout}
    assert sets[("train", "original")] == 18
    assert sets[("val", "mixed_rand")] == 9


def test_a_folder_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "list", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err
