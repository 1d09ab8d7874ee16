"""How a recipe is laid over its base."""

from __future__ import annotations

from pathlib import Path

import pytest

from objectaware.errors import InputError
from objectaware.recipes import find_recipe, read_recipe

ROOT = Path(__file__).parents[1]


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


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("moco_resnet18_folder", "jobs/recipes/moco_resnet18_folder.yaml"),
        ("moco_resnet18_folder.yaml", "jobs/recipes/moco_resnet18_folder.yaml"),
        ("jobs/recipes/linear_in9.yaml", "jobs/recipes/linear_in9.yaml"),
        ("p_mix", "sweeps/p_mix.yaml"),
        ("sweeps/p_mix.yaml", "sweeps/p_mix.yaml"),
    ],
)
def test_what_comes_with_the_package_is_found_from_any_folder(
    name: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_recipe(Path(name)).samefile(ROOT / file)


def test_the_users_own_file_comes_before_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs" / "recipes").mkdir(parents=True)
    _write(tmp_path / "jobs" / "recipes", linear_in9="seed: 7\n")
    assert read_recipe(Path("jobs/recipes/linear_in9.yaml")) == {"seed": 7}


@pytest.mark.parametrize("name", ["../recipes.py", "elsewhere/moco_resnet18_folder.yaml", "/p_mix.yaml"])
def test_other_paths_are_not_looked_for_in_the_package(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        read_recipe(Path(name))


def test_a_folder_is_not_looked_for_in_the_package() -> None:
    assert find_recipe(Path()) == Path()
