"""The fields of recipes, as --help lists them: name, type, default and meaning.

The fields are read from schema.json, which is generated from the models of configuration and ships with the package, so
that --help imports neither pydantic nor torch. `make schema` writes the file, and a test compares it with the models.
"""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin

from objectaware.process import import_modules

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from objectaware.config import Model
    from objectaware.config.variants import Variant

SCHEMA = Path(__file__).with_name("schema.json")

Field = dict[str, Any]
"""`type`, `meaning`, and `default` unless the field is required. If the value, or each value of a mapping or list, has
fields itself: the name of their `model`, and in `below` the text that leads to them (`.`, `.NAME.`, `[].`). For an
option: the model of each of its `variants`, by name."""


def format_fields(model: str) -> str:
    """Return the fields of a model as text. Nested fields have dotted names."""
    schema = _schema(SCHEMA)["models"]
    width = min(shutil.get_terminal_size().columns, 100)
    return "\n".join([f"{model}:", *_lines(schema, model, "", {}, width)])


def _lines(schema: Mapping[str, Any], model: str, prefix: str, listed: dict[str, str], width: int) -> Iterator[str]:
    """Yield the lines of a model's fields.

    Args:
        schema: Fields by model.
        model: Name of one of its models.
        prefix: Text before each name.
        listed: Place where the fields of a model were listed, by model, since they are listed only once.
        width: Width of the text in characters.
    """
    fields: dict[str, Field] = schema[model]["fields"]
    for name, field in fields.items():
        inner = field.get("model")
        head = f"  {prefix}{name}: {field['type']}"
        if "default" not in field:
            head += " (required)"
        elif inner is None:
            head += f" (default: {_as_yaml(field['default'])})"
        yield textwrap.fill(head, width, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False)
        yield textwrap.fill(field["meaning"], width, initial_indent=" " * 6, subsequent_indent=" " * 6)
        for variant, its_model in field.get("variants", {}).items():
            summary = f"  {prefix}{name} = {variant}: {schema[its_model]['summary']}"
            yield textwrap.fill(summary, width, subsequent_indent=" " * 8)
            yield from _lines(schema, its_model, f"{prefix}{name}.", listed, width)
        if inner is None:
            continue
        below = f"{prefix}{name}{field['below']}"
        if inner in listed:
            yield f"  {below}…: as {listed[inner]}…"
        else:
            listed[inner] = below
            yield from _lines(schema, inner, below, listed, width)


def _as_yaml(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def describe_models() -> dict[str, Any]:
    """Describe every model of a recipe and every kind of stage, in the form of schema.json."""
    from objectaware.stages.registry import all_stages

    stages = {
        kind: {"command": one.command, "model": one.config.__name__, "summary": one.summary}
        for kind, one in all_stages().items()
    }
    return {"models": {model.__name__: _described(model) for model in _models()}, "stages": stages}


def described_options(model: str) -> dict[str, str]:
    """Return the options of a model, each with the name of its default variant."""
    fields: dict[str, Field] = _schema(SCHEMA)["models"][model]["fields"]
    return {name: str(field["default"]) for name, field in fields.items() if "variants" in field}


def described_stages() -> dict[str, dict[str, str]]:
    """Return the kinds of stages by name, each with its `command`, the name of its `model` and its `summary`."""
    return dict(_schema(SCHEMA)["stages"])


@cache
def _schema(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text()))


def write_schema() -> None:
    """Replace schema.json with the current description of the models."""
    SCHEMA.write_text(json.dumps(describe_models(), indent=1, ensure_ascii=False) + "\n")


def _models() -> Iterator[type[Model]]:
    """Yield the models of configuration: those of data sets, options' variants, stages and studies."""
    from objectaware.config import DataConfig, Model
    from objectaware.config.variants import Variant

    yield DataConfig
    for package in ("config", "stages", "studies"):
        for module in import_modules(f"objectaware.{package}"):
            for one in vars(module).values():
                if isinstance(one, type) and issubclass(one, Model) and one.__module__ == module.__name__:
                    # An option has no fields of its own, only those of its variants.
                    yield from _own_variants(one).values() if issubclass(one, Variant) else [one]


def _own_variants(option: type[Variant]) -> dict[str, type[Variant]]:
    """Return the variants of an option that come with this package, by name, or none for a base of all options."""
    if not hasattr(option, "package"):
        return {}
    return {name: one for name, one in option.variants().items() if one.__module__.startswith("objectaware.")}


def _described(model: type[Model]) -> dict[str, Any]:
    meanings: dict[str, str] = {}
    for base in reversed(model.__mro__):
        meanings |= _attributes(base.__doc__ or "")
    fields = {name: _field(info, meanings.get(name, "")) for name, info in model.model_fields.items()}
    if not _is_variant(model):
        return {"fields": fields}
    # The name of the variant is shown where its fields are listed.
    del fields["name"]
    return {"summary": (model.__doc__ or "").partition("\n")[0], "fields": fields}


def _is_variant(annotation: object) -> TypeGuard[type[Variant]]:
    from objectaware.config.variants import Variant

    return isinstance(annotation, type) and issubclass(annotation, Variant)


def _attributes(docstring: str) -> dict[str, str]:
    """Return the section "Attributes" of a Google docstring: meanings by name."""
    import docstring_parser

    parameters = docstring_parser.parse(docstring, docstring_parser.DocstringStyle.GOOGLE).params
    return {one.arg_name: " ".join((one.description or "").split()) for one in parameters if "attribute" in one.args}


def _field(info: FieldInfo, meaning: str) -> Field:
    if _is_variant(info.annotation):
        variants = {name: one.__name__ for name, one in _own_variants(info.annotation).items()}
        default = info.annotation.default_name
        return {"type": " | ".join(variants), "meaning": meaning, "default": default, "variants": variants}
    from pydantic_core import to_jsonable_python

    field: Field = {"type": _type_name(info.annotation, info.metadata), "meaning": meaning}
    if not info.is_required():
        field["default"] = to_jsonable_python(info.get_default(call_default_factory=True))
    inner = _inner_model(info.annotation)
    if inner is not None:
        origin = get_origin(info.annotation)
        below = ".NAME." if origin is dict else "[]." if origin is tuple else "."
        field |= {"model": inner.__name__, "below": below}
    return field


def _inner_model(annotation: object) -> type[Model] | None:
    from objectaware.config import Model

    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation
    return next((found for one in get_args(annotation) if (found := _inner_model(one)) is not None), None)


_NAMES: dict[object, str] = {bool: "true | false", int: "integer", float: "number", str: "text"}
_NAMES |= {NoneType: "null", Any: "any value"}


def _type_name(annotation: object, metadata: Sequence[object] = ()) -> str:
    """Return a type in words, with the bounds of its values."""
    from objectaware.data.dataset import LayoutName, layouts
    from objectaware.model import PointsTo

    if any(isinstance(one, PointsTo) for one in metadata):
        return "path or URI"
    if get_args(LayoutName)[1] in metadata:
        return " | ".join(layout.name for layout in layouts())
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_name(inner[0], inner[1:])
    if origin is Literal:
        name = " | ".join(map(str, inner))
    elif origin in (Union, UnionType):
        name = " or ".join(map(_type_name, inner))
    elif origin is dict:
        name = f"mapping of names to: {_type_name(inner[1])}"
    elif origin is tuple and inner[-1] is not ...:
        name = f"[{', '.join(map(_type_name, inner))}]"
    elif origin in (tuple, list):
        name = f"list of: {_type_name(inner[0])}"
    elif isinstance(annotation, type) and annotation not in _NAMES:
        name = "mapping"
    else:
        name = _NAMES[annotation]
    return f"{name} {', '.join(_bounds(metadata))}".rstrip()


def _bounds(metadata: Sequence[object]) -> Iterator[str]:
    for one in metadata:
        if hasattr(one, "metadata"):  # a pydantic Field inside another type has its bounds in `metadata`
            yield from _bounds(one.metadata)
        for sign, attribute in ((">", "gt"), ("≥", "ge"), ("<", "lt"), ("≤", "le")):
            if hasattr(one, attribute):
                yield f"{sign} {getattr(one, attribute)}"
