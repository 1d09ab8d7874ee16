"""How a recipe is laid over its base."""

from __future__ import annotations

from pathlib import Path

import pytest

from objectaware.errors import InputError
from objectaware.recipes import read_recipe


def _write(folder: Path, **recipes: str) -> None:
    for name, text in recipes.items():
        (folder / f"{name}.yaml").write_text(text)


def test_a_recipe_overrides_its_base_field_by_field(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    _write(tmp_path / "base", coco="data: {root: a, split: train}\nnum_epochs: 800\nsizes: [1, 2]\n")
    _write(tmp_path, crop="base: base/coco.yaml\ndata: {split: null}\nsizes: [3]\nmethod: byol\n")
    assert read_recipe(tmp_path / "crop.yaml") == {
        "data": {"root": "a", "split": None},
        "num_epochs": 800,
        "sizes": [3],
        "method": "byol",
    }


@pytest.mark.parametrize("text", ["data: photos\n", "data: null\n"])
def test_a_value_and_a_mapping_replace_each_other(text: str, tmp_path: Path) -> None:
    _write(tmp_path, nested="data: {root: a}\n", plain=text)
    _write(tmp_path, one="base: nested.yaml\n" + text, other="base: plain.yaml\ndata: {root: a}\n")
    assert read_recipe(tmp_path / "one.yaml") == read_recipe(tmp_path / "plain.yaml")
    assert read_recipe(tmp_path / "other.yaml") == read_recipe(tmp_path / "nested.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: missing.yaml\n", "recipe = .*missing.yaml: does not exist"),
        ("base: second.yaml\n", "base = second.yaml: names a base itself"),
        ("base: first.yaml\n", "base = first.yaml: names a base itself"),
        ("base: [a.yaml, b.yaml]\n", "base = .* is not a path"),
        ("base: text.yaml\n", "text.yaml: is not a mapping"),
    ],
)
def test_a_base_that_is_none_is_refused(text: str, message: str, tmp_path: Path) -> None:
    _write(tmp_path, first=text, second="base: third.yaml\n", third="seed: 0\n", text="words\n")
    with pytest.raises(InputError, match=message):
        read_recipe(tmp_path / "first.yaml")
