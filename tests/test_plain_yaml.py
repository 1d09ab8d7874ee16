"""Hostile YAML: a line that says what is wrong, at once."""

from __future__ import annotations

import time
from datetime import date
from pathlib import Path

import pytest

from objectaware.cli import run
from objectaware.errors import InputError
from objectaware.recipes import parse_yaml, read_yaml

RECIPE = Path(__file__).parents[1] / "jobs" / "recipes" / "moco_resnet18_folder.yaml"
LAUGHS = "a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha]\n" + "".join(
    f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 9)}]\n" for number in range(1, 12)
)
HOSTILE = {
    "laughs": (LAUGHS + "method: *a11\n", "aliases that stand for more than"),
    "circle": ("method: &loop [*loop]\n", "aliases that stand for more than"),
    "deep": (f"method: {'[' * 5000}{']' * 5000}\n", "nested too deeply"),
    "code": ("method: !!python/object/apply:os.mkdir [was-here]\n", "is not YAML"),
    "unknown alias": ("method: *nobody\n", "is not YAML"),
    "torn": ("method: {moco\n", "is not YAML"),
    "two documents": ("method: moco\n---\nmethod: byol\n", "is not YAML"),
    "control characters": ("method: \x00\n", "is not YAML"),
    "long": ("# " + "x" * 2**20, "more than the 1048576"),
}


@pytest.mark.chaos(fault="hostile YAML", holds="exit status 2 and a line that says why, within seconds; no code runs")
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_recipe_is_refused_at_once(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content, problem = HOSTILE[name]
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(content)
    began = time.process_time()
    assert run(["pretrain", str(recipe)]) == 2
    assert time.process_time() - began < 20
    said = capsys.readouterr().err
    assert problem in said
    assert "recipe.yaml" in said
    assert "Traceback" not in said
    assert not (tmp_path / "was-here").exists()


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(InputError, match=r"recipe = .*recipe\.yaml: is not text"):
        read_yaml(tmp_path / "recipe.yaml", field="recipe")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("3", 3),
        ("a: &x {b: 1}\nc: {<<: *x, d: [*x, *x]}\n", {"a": {"b": 1}, "c": {"b": 1, "d": [{"b": 1}, {"b": 1}]}}),
        ("2026-01-02", date(2026, 1, 2)),
    ],
)
def test_plain_values_and_aliases_are_what_they_are(text: str, value: object) -> None:
    assert parse_yaml(text, field="recipe", source=text) == value


def test_a_value_on_the_command_line_that_is_no_yaml_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pretrain", str(RECIPE), "--seed", "[1"]) == 2
    assert "--seed = [1: is not YAML" in capsys.readouterr().err
