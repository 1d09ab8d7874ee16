"""How an option's variants are found, validated, serialised and laid over each other."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import ValidationError

from objectaware import model
from objectaware.config.variants import Variant, WithOptions, default_names
from objectaware.errors import InputError
from objectaware.model import Model
from objectaware.recipes import merged, override, read_recipe

OPTIONS = {"shape": "round"}


class Shape(Variant):
    """An option that is made for these tests; its variants are below, and no module of the package has any."""

    package = "objectaware.commands"
    default_name = "round"

    corners: ClassVar[int] = 0


class Round(Shape):
    """One variant."""

    former_names: ClassVar = {"thickness": "radius"}

    name: Literal["round"] = "round"
    radius: float = 1.0


class Rectangular(Shape):
    """A base of several variants."""

    corners = 4
    width: int = 3


class Square(Rectangular):
    """Another variant."""

    name: Literal["square"] = "square"


class Canvas(WithOptions):
    """A configuration with the option."""

    shape: Shape = Shape.default_field()
    size: int = 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Round()),
        ({"shape": "square"}, Square()),
        ({"shape": {"name": "square", "width": 5}}, Square(width=5)),
        ({"shape": {"radius": 2}}, Round(radius=2)),
        ({"shape": Round(radius=3)}, Round(radius=3)),
    ],
)
def test_a_name_or_fields_or_a_variant_are_taken(given: dict[str, Any], expected: Shape) -> None:
    canvas = Canvas.model_validate(given)
    assert canvas.shape == expected
    assert type(canvas.shape) is type(expected)


def test_a_variant_serialises_with_its_own_fields() -> None:
    canvas = Canvas(shape=Square(width=7))
    expected = {"shape": {"name": "square", "width": 7}, "size": 1}
    assert canvas.model_dump() == canvas.model_dump(mode="json") == expected
    assert canvas.model_dump(mode="json", exclude={"shape": {"width"}})["shape"] == {"name": "square"}
    assert Canvas.model_validate_json(canvas.model_dump_json()) == canvas


@pytest.mark.parametrize(
    ("given", "place", "message"),
    [
        ({"shape": "oval"}, ("shape", "name"), "choose round | square"),
        ({"shape": {"name": "oval"}}, ("shape", "name"), "choose round | square"),
        ({"shape": 3}, ("shape",), "give a name"),
        ({"shape": {"name": "square", "radius": 1}}, ("shape", "radius"), "Extra inputs"),
        ({"shape": {"radius": "wide"}}, ("shape", "radius"), "valid number"),
        ({"radius": 2}, ("radius",), "is named shape.radius"),
        ({"shape": "round", "width": 2}, ("width",), "is named shape.width"),
        ({"thickness": 2}, ("thickness",), "is named shape.radius"),
        ({"colour": 2}, ("colour",), "Extra inputs"),
    ],
)
def test_a_refusal_names_the_field(given: dict[str, Any], place: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        Canvas.model_validate(given)
    [error] = refusal.value.errors()
    assert error["loc"] == place
    assert message in error["msg"]


def test_variants_are_those_with_a_name() -> None:
    assert list(Shape.variants()) == ["round", "square"]
    assert list(Rectangular.variants()) == ["square"]
    assert default_names(Canvas) == OPTIONS


def test_a_name_is_not_given_twice() -> None:
    with pytest.raises(InputError, match=r"name = round: is the name of two variants: .*\.Round and .*\.AlsoRound"):

        class AlsoRound(Shape):
            name: Literal["round"] = "round"

    assert Shape.variants()["round"] is Round


def _write_package(folder: Path, name: str, **modules: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("")
    for module_name, text in modules.items():
        (folder / name / f"{module_name}.py").write_text(text)


_VARIANT = """
from typing import Literal
from {option} import Option
class {name}(Option):
    name: Literal["{name}"] = "{name}"
"""


def test_a_variant_is_a_file_of_the_folder_or_a_module_of_another_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else names either of them. Modules are imported at the first look, not before."""
    option = (
        "from objectaware.config.variants import Variant\n"
        "class Option(Variant):\n    package = 'inside_package'\n    default_name = 'here'\n"
    )
    _write_package(
        tmp_path, "inside_package", option=option, here=_VARIANT.format(option="inside_package.option", name="here")
    )
    _write_package(tmp_path, "outside_package", there=_VARIANT.format(option="inside_package.option", name="there"))
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("there", "outside_package.there", model.ENTRY_POINT_GROUP)
    monkeypatch.setattr(model, "entry_points", lambda group: [point] if group == "objectaware.variants" else [])
    model.load_entry_points.cache_clear()
    from inside_package.option import Option  # type: ignore[import-not-found]

    assert "inside_package.here" not in sys.modules
    assert list(Option.variants()) == ["here", "there"]


def test_a_module_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_package(tmp_path, "broken_package", broken="import nothing_of_that_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("broken", "broken_package.broken", model.ENTRY_POINT_GROUP)
    monkeypatch.setattr(model, "entry_points", lambda group: [point])
    model.load_entry_points.cache_clear()
    with pytest.raises(InputError, match=r"broken_package.broken: cannot be imported \(ModuleNotFoundError: .*"):
        model.load_entry_points()
    model.load_entry_points.cache_clear()


@pytest.mark.parametrize(
    ("below", "above", "expected"),
    [
        ({}, {"shape": "square"}, {"name": "square"}),
        ({"shape": "round"}, {"shape": {"radius": 2}}, {"name": "round", "radius": 2}),
        ({"shape": {"name": "round", "radius": 2}}, {"shape": "square"}, {"name": "square"}),
        ({"shape": {"name": "round", "radius": 2}}, {"shape": "round"}, {"name": "round", "radius": 2}),
        ({"shape": {"radius": 2}}, {"shape": {"name": "square", "width": 1}}, {"name": "square", "width": 1}),
        ({"shape": {"radius": 2}}, {"shape": "square"}, {"name": "square"}),
        ({"shape": {"radius": 2}}, {"shape": "round"}, {"name": "round", "radius": 2}),
        ({"shape": {"name": "square", "width": 2}}, {"shape": {"width": 4}}, {"name": "square", "width": 4}),
        ({"shape": {"name": "square", "width": 2}}, {}, {"name": "square", "width": 2}),
    ],
)  # fmt: skip
def test_another_name_drops_the_fields_of_the_one_below(
    below: dict[str, object], above: dict[str, object], expected: dict[str, object]
) -> None:
    assert merged(below, above, OPTIONS)["shape"] == expected


def test_a_recipe_lies_over_the_variant_of_its_base(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("shape: round\nsize: 2\n")
    (tmp_path / "other.yaml").write_text("base: base.yaml\nshape: {radius: 5}\n")
    (tmp_path / "alone.yaml").write_text("shape: square\n")
    assert read_recipe(tmp_path / "other.yaml", OPTIONS) == {"shape": {"name": "round", "radius": 5}, "size": 2}
    assert read_recipe(tmp_path / "alone.yaml", OPTIONS) == {"shape": {"name": "square"}}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--shape.radius 3", {"name": "round", "radius": 3}),
        ("--shape square", {"name": "square"}),
        ("--shape round", {"name": "round", "radius": 2}),
        ("--shape.name square", {"name": "square"}),
        ("--shape.width 4 --shape square", {"name": "square", "width": 4}),
        ("--shape.width 4 --shape.name square", {"name": "square", "width": 4}),
        ("--shape square --shape.width 4", {"name": "square", "width": 4}),
    ],
)
def test_an_override_reaches_into_an_option(arguments: str, expected: dict[str, object]) -> None:
    recipe: dict[str, object] = {"shape": {"name": "round", "radius": 2}, "size": 1}
    assert override(recipe, arguments.split(), OPTIONS) == {"shape": expected, "size": 1}


def test_an_override_replaces_an_option_by_a_mapping_and_reaches_into_a_name() -> None:
    recipe: dict[str, object] = {"shape": {"name": "round", "radius": 2}}
    assert override(recipe, ["--shape", "{name: square, width: 1}"], OPTIONS)["shape"] == {"name": "square", "width": 1}
    assert override({"shape": "square"}, ["--shape.width", "2"], OPTIONS)["shape"] == {"name": "square", "width": 2}
    with pytest.raises(InputError, match="reaches into size, which is a single value"):
        override({"size": 1}, ["--size.width", "2"], OPTIONS)


def test_a_model_without_options_has_none() -> None:
    class Plain(Model):
        name: str = "plain"

    assert default_names(Plain) == {}
