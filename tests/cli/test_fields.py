"""What --help lists of a recipe's fields, and that it is what the models of configuration say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from objectaware.cli import run
from objectaware.commands.fields import SCHEMA, _described, describe_models, format_fields
from objectaware.config import MethodConfig, Model
from objectaware.config.variants import Variant
from objectaware.model import Address, Positive
from objectaware.training.optimizers.sgd import SGDConfig

SCHEMA_OF = {
    "pretrain": "PretrainConfig",
    "localize": "LocalizeConfig",
    "demo": "DemoConfig",
    "sweep": "SweepConfig",
    "evaluate linear": "LinearConfig",
    "evaluate shift": "ShiftConfig",
    "evaluate knn": "KnnConfig",
    "evaluate few-shot": "FewShotConfig",
    "evaluate class-distance": "ClassDistanceConfig",
    "evaluate localization": "LocalizationConfig",
    "evaluate localizers": "LocalizersConfig",
    "evaluate detection": "DetectionConfig",
}


def test_the_shipped_fields_are_those_of_the_models() -> None:
    assert json.loads(SCHEMA.read_text()) == describe_models(), "run `make schema`"


def test_every_field_of_every_model_has_a_meaning() -> None:
    fields = {
        (model, name): field
        for model, one in describe_models()["models"].items()
        for name, field in one["fields"].items()
    }
    assert len(fields) > 100
    assert [place for place, field in fields.items() if not field["meaning"]] == []


@pytest.mark.parametrize("command", SCHEMA_OF)
def test_help_lists_each_field_with_its_default(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_status:
        run([*command.split(), "--help"])
    assert exit_status.value.code == 0
    shown = capsys.readouterr().out
    for name in json.loads(SCHEMA.read_text())["models"][SCHEMA_OF[command]]["fields"]:
        assert f"\n  {name}: " in shown, name


def test_help_gives_types_bounds_and_defaults() -> None:
    lines = format_fields("PretrainConfig").splitlines()
    assert "  data.root: path or URI (required)" in lines
    assert "  optimizer.momentum: number ≥ 0, < 1 (default: 0.9)" in lines
    assert f"  method: {' | '.join(MethodConfig.variants())} (default: moco)" in lines
    assert "  method.temperature: number > 0 (default: 0.2)" in lines
    assert "  policy.masks: ground_truth or path or URI (required)" in lines
    assert "  execution.use_gpu: true | false or null (default: null)" in lines
    assert SGDConfig.model_fields["momentum"].default == 0.9


def test_a_field_is_described_by_its_annotation_and_the_docstring() -> None:
    class Inner(Model):
        """One of several.

        Attributes:
            size: How large
                it is.
        """

        size: Positive | None = None

    class Outer(Inner):
        """Made for this test.

        Attributes:
            kind: Which.
            parts: By name.
            place: Where.
            pair: Two.
            extra: Free.

        Example:
            size: not a meaning.
        """

        kind: Literal["a", "b"] = "b"
        parts: dict[str, Inner]
        place: Address
        pair: tuple[Annotated[float, Field(gt=0)], int] = (0.5, 1)
        extra: dict[str, Any] = Field(default_factory=dict)

    assert _described(Outer)["fields"] == {
        "size": {"type": "integer ≥ 1 or null", "meaning": "How large it is.", "default": None},
        "kind": {"type": "a | b", "meaning": "Which.", "default": "b"},
        "parts": {"type": "mapping of names to: mapping", "meaning": "By name.", "model": "Inner", "below": ".NAME."},
        "place": {"type": "path or URI", "meaning": "Where."},
        "pair": {"type": "[number > 0, integer]", "meaning": "Two.", "default": [0.5, 1]},
        "extra": {"type": "mapping of names to: any value", "meaning": "Free.", "default": {}},
    }


def test_an_option_lists_the_fields_of_each_variant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Finish(Variant):
        package = "objectaware.commands"
        default_name = "matt"

    class Matt(Finish):
        """Without gloss.

        Attributes:
            grain: Size of the grain.
        """

        name: Literal["matt"] = "matt"
        grain: Positive = 3

    class Bare(Finish):
        """Nothing at all."""

        name: Literal["bare"] = "bare"

    # As if the package itself defined them.
    for variant in (Matt, Bare):
        monkeypatch.setattr(variant, "__module__", "objectaware.made_up")

    class Painting(Model):
        """Made for this test.

        Attributes:
            finish: Last coat.
        """

        finish: Finish = Finish.default_field()

    schema = {model.__name__: _described(model) for model in (Painting, Matt, Bare)}
    monkeypatch.setattr("objectaware.commands.fields.SCHEMA", tmp_path / "schema.json")
    (tmp_path / "schema.json").write_text(json.dumps({"models": schema}))
    assert format_fields("Painting").splitlines() == [
        "Painting:",
        "  finish: bare | matt (default: matt)",
        "      Last coat.",
        "  finish = bare: Nothing at all.",
        "  finish = matt: Without gloss.",
        "  finish.grain: integer ≥ 1 (default: 3)",
        "      Size of the grain.",
    ]


def test_the_fields_of_a_model_are_listed_once() -> None:
    lines = format_fields("LinearConfig").splitlines()
    assert sum(line.endswith(".root: path or URI (required)") for line in lines) == 1
    assert "  tests.NAME.…: as train.…" in lines


def test_help_imports_nothing_heavy_and_takes_a_second_of_a_core_at_most() -> None:
    code = f"""
import contextlib, sys
from objectaware.cli import run
for command in {[*SCHEMA_OF]}:
    with contextlib.suppress(SystemExit):
        run([*command.split(), "--help"])
    heavy = {{"pydantic", "torch", "ray", "mlflow", "pandas", "numpy"}} & sys.modules.keys()
    assert not heavy, (command, heavy)
    if command == "pretrain":
        import resource
        used = resource.getrusage(resource.RUSAGE_SELF)
        assert used.ru_utime + used.ru_stime < 1, used
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
