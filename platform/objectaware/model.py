"""The base of all models of configuration, and the kinds of values that their fields hold."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from objectaware.errors import InputError

ENTRY_POINT_GROUP = "objectaware.variants"
"""Entry points of other distributions, each the name of a module that registers variants or layouts."""


def _absolute(address: str) -> str:
    """Ray starts workers in folders of their own, where a relative path would name another place."""
    return address if "://" in address else str(Path(address).expanduser().absolute())


Address = Annotated[str, AfterValidator(_absolute)]
"""Path or URI; a path is relative to the folder that the command was started in, and made absolute at once."""
Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(ge=1)]
Minutes = Annotated[float, Field(gt=0)]
Byte = Annotated[int, Field(ge=0, le=255)]


class Model(BaseModel):
    """Base of all configuration: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def filled(values: dict[str, object], defaults: Mapping[str, object]) -> dict[str, object]:
    """Fields as given, and the defaults of those that are missing or None, so that a stored recipe says them all."""
    return {**values, **{name: value for name, value in defaults.items() if values.get(name) is None}}


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
            remedy = f"Mend or uninstall the package {owner}."
            raise InputError(ENTRY_POINT_GROUP, point.value, problem, remedy) from error
