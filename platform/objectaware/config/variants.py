"""Options that have variants, such as the method of a training: one class and one file for each variant.

An option is a subclass of `Variant` that names the package of its variants. A variant is a subclass of the option with
`name: Literal["…"]`, its own fields and their defaults. Defining the class registers it; there is no table to edit:

    class MethodConfig(Variant):            # the option
        package = "objectaware.methods"
        default_name = "moco"

    class MoCoConfig(MethodConfig):         # a variant, in any file of objectaware/methods/
        name: Literal["moco"] = "moco"
        temperature: float = 0.2

    class PretrainConfig(WithOptions):      # a configuration with the option
        method: MethodConfig = MethodConfig.default_field()

An entry point of the group `objectaware.variants` names the module of a variant in another distribution. Modules are
imported when the first value is validated, not before, since code that only reads recipes does not need torch.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Literal, Self, get_args, get_origin

from pydantic import Field, GetCoreSchemaHandler, ValidationError, model_validator
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from objectaware.errors import InputError
from objectaware.model import Model, load_entry_points


def _literal_name(variant: type[Model]) -> str | None:
    """Return the name that a class gives its variant; None for an option or another base of several variants."""
    annotation: Any = variant.model_fields["name"].annotation if "name" in variant.model_fields else None
    return str(get_args(annotation)[0]) if get_origin(annotation) is Literal else None


class Variant(Model):
    """Base of all options and their variants.

    A field typed by an option takes a name, a mapping of a variant's fields with its `name`, or a variant. A mapping
    without a name belongs to the option's default variant. The field serialises as the variant, with all its fields.

    Attributes:
        package: Package whose modules define the option's variants.
        default_name: Name of the default variant.
        former_names: Fields that recipes used to have beside the option under another name: new names by old names.
        name: Name of the variant.
    """

    package: ClassVar[str]
    default_name: ClassVar[str]
    former_names: ClassVar[Mapping[str, str]] = {}
    _registered: ClassVar[dict[str, type[Variant]]]

    name: str

    @classmethod
    def __pydantic_init_subclass__(cls, **_: object) -> None:
        """Register a variant with its option, or open the registry of an option."""
        if Variant in cls.__bases__:
            cls._registered = {}
        name = _literal_name(cls)
        if name is None:
            return
        known = cls._registered.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            problem = f"is the name of two variants: {known.__module__}.{known.__qualname__} and "
            remedy = "Rename one of them, or uninstall its package."
            raise InputError("name", name, f"{problem}{cls.__module__}.{cls.__qualname__}", remedy)
        cls._registered[name] = cls

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler, /) -> CoreSchema:  # noqa: ANN401 - pydantic's own
        """Validate a field typed by an option as one of its variants."""
        if _literal_name(cls) is not None:
            return handler(source)
        # `any` serialises by the value's own class. The declared class would drop the fields of the variant.
        return core_schema.no_info_plain_validator_function(
            cls._validated, serialization=core_schema.simple_ser_schema("any")
        )

    @classmethod
    def _validated(cls, value: object) -> Variant:
        if isinstance(value, cls):
            return value
        fields = {"name": value} if isinstance(value, str) else value
        if not isinstance(fields, Mapping):
            raise PydanticCustomError(
                "option", "give a name, or a mapping with one: {names}", {"names": ", ".join(cls.variants())}
            )
        name = fields.get("name") or cls.default_name
        variant = cls.variants().get(str(name))
        if variant is None:
            unknown = PydanticCustomError("unknown_name", "choose {names}", {"names": " | ".join(cls.variants())})
            details = InitErrorDetails(type=unknown, loc=("name",), input=name)
            raise ValidationError.from_exception_data(cls.__name__, [details])
        return variant.model_validate({**fields, "name": name})

    @classmethod
    def variants(cls) -> dict[str, type[Self]]:
        """Return all variants of an option by name, in alphabetical order."""
        load_variants(cls.package)
        found: dict[str, Any] = cls._registered
        return {name: found[name] for name in sorted(found) if issubclass(found[name], cls)}

    @classmethod
    def default_field(cls) -> Any:  # noqa: ANN401 - as pydantic's Field
        """Return the default of a field typed by an option: the default variant, which is made when it is needed."""
        return Field(default_factory=lambda: cls.variants()[cls.default_name].model_validate({}))


@cache
def load_variants(package: str) -> None:
    """Import the modules of a package, and those of other distributions that register variants.

    Raises:
        InputError: A module of another distribution cannot be imported.
    """
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(found.name)
    load_entry_points()


def option_fields(model: type[Model]) -> dict[str, type[Variant]]:
    """Return the fields of a model that are typed by an option, each with its option."""
    return {
        name: info.annotation
        for name, info in model.model_fields.items()
        if isinstance(info.annotation, type) and issubclass(info.annotation, Variant)
    }


def default_names(model: type[Model]) -> dict[str, str]:
    """Return the fields of a model that are typed by an option, each with the name of its default variant.

    `objectaware.recipes` needs them, so that a recipe's `method: moco` stands for `method: {name: moco}`.
    """
    return {name: option.default_name for name, option in option_fields(model).items()}


class WithOptions(Model):
    """Base of a configuration with options. It refuses a variant's field beside its option, and names its place."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_flat_fields(cls, values: object) -> object:
        if not isinstance(values, Mapping):
            return values
        options = option_fields(cls)
        details = [
            InitErrorDetails(type=PydanticCustomError("moved", place), loc=(name,), input=values[name])
            for name in values
            if isinstance(name, str) and name not in cls.model_fields
            for place in [_place_of(name, options)]
            if place is not None
        ]
        if details:
            raise ValidationError.from_exception_data(cls.__name__, details)
        return values


def _place_of(name: str, options: Mapping[str, type[Variant]]) -> Any:  # noqa: ANN401 - a LiteralString for pydantic
    """Return the correct form of a flat field that belongs to an option's variants; None for any other field."""
    for field, option in options.items():
        variants = option.variants().values()
        former = {old: new for variant in variants for old, new in variant.former_names.items()}
        new = former.get(name, name)
        if any(new in variant.model_fields for variant in variants):
            return f"is named {field}.{new}: write {field}: {{{new}: …}} in a recipe, --{field}.{new} as an option"
    return None
