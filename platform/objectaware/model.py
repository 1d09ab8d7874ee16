"""The base of all configuration models, and the types of values that their fields hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from objectaware.errors import InputError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

ENTRY_POINT_GROUP = "objectaware.variants"
"""Group of entry points of other distributions. Each one names a module that registers variants or layouts."""


def _absolute(address: str) -> str:
    """Make a path absolute: Ray starts workers in other folders, where a relative path would name another place."""
    return address if "://" in address else str(Path(address).expanduser().absolute())


@dataclass(frozen=True)
class PointsTo:
    """Mark of a type whose values are addresses. Not the address but the content at it decides a result.

    Attributes:
        content: Kind of the content: `checkpoint`, `classifier`, `masks`, or `part` for a part of something else that
            is hashed as a whole, such as a data set.
    """

    content: str


Address = Annotated[str, AfterValidator(_absolute), PointsTo("part")]
"""Path or URI. A path is relative to the folder in which the command was started, and is made absolute at once."""
CheckpointAddress = Annotated[str, AfterValidator(_absolute), PointsTo("checkpoint")]
ClassifierAddress = Annotated[str, AfterValidator(_absolute), PointsTo("classifier")]
MasksAddress = Annotated[str, AfterValidator(_absolute), PointsTo("masks")]
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Side = Annotated[int, Field(ge=32)]
PositiveNumber = Annotated[float, Field(gt=0)]
Minutes = Annotated[float, Field(gt=0)]
Byte = Annotated[int, Field(ge=0, le=255)]


class Model(BaseModel):
    """Base of all configuration models. They are immutable and refuse unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Execution(Model):
    """Base of the settings of how a stage or a sweep runs. They change speed and place, but never a result."""


class StageExecution(Execution):
    """Base of the settings of how a stage runs.

    Attributes:
        max_wait_minutes: Longest wait for room on a cluster that is busy or still starts its nodes. By default the
            stage waits without end.
    """

    max_wait_minutes: Minutes | None = None


def points_to(field: FieldInfo) -> str | None:
    """Return the content of the addresses in a field, however deeply they are nested; None if it holds no address."""
    return _points_to(field.annotation, field.metadata)


def _points_to(annotation: object, metadata: Sequence[object] = ()) -> str | None:
    marks: list[str | None] = [one.content for one in metadata if isinstance(one, PointsTo)]
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        marks.append(_points_to(inner, more))
    elif not isinstance(annotation, type):
        marks += map(_points_to, get_args(annotation))
    return next((mark for mark in marks if mark is not None), None)


def filled(values: dict[str, object], defaults: Mapping[str, object]) -> dict[str, object]:
    """Fill in defaults for fields that are missing or None, so that stored recipes are complete."""
    return {**values, **{name: value for name, value in defaults.items() if values.get(name) is None}}


def first_fault(error: ValidationError) -> tuple[tuple[str, ...], object, str]:
    """Return the first fault that a validation found: the place, the value there (… for a mapping) and the problem."""
    first = error.errors()[0]
    given = "…" if isinstance(first["input"], Mapping) else first["input"]
    problem = first["msg"].removeprefix("Value error, ").rstrip(".")
    if first["type"] in ("tuple_type", "list_type"):
        problem = f"must be a list, such as [{given}]"
    return tuple(map(str, first["loc"])), given, problem[:1].lower() + problem[1:]


@cache
def load_entry_points() -> None:
    """Import the modules of other distributions that register variants or layouts.

    Raises:
        InputError: A module cannot be imported.
    """
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            point.load()
        except Exception as error:
            owner = point.dist.name if point.dist is not None else "that registers it"
            problem = f"cannot be imported ({type(error).__name__}: {error})"
            remedy = f"Repair or uninstall the package {owner}."
            raise InputError(ENTRY_POINT_GROUP, point.value, problem, remedy) from error
