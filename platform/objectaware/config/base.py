"""Shared parts of the configurations of trainings."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from objectaware.model import Execution

Precision = Literal["fp32", "bf16"]


class TrainingExecution(Execution):
    """Base of the settings of how a training runs. They change speed and place, but never a result.

    Attributes:
        moved: Fields that used to be here and are now fields of the recipe itself.
    """

    moved: ClassVar[tuple[str, ...]] = ("precision",)

    @model_validator(mode="before")
    @classmethod
    def _refuse_moved(cls, values: object) -> object:
        for name in cls.moved:
            if isinstance(values, dict) and name in values:
                raise ValueError(
                    f"execution.{name} changes the result and is named {name} now: write {name} beside execution, not "
                    f"in it (--{name} VALUE)"
                )
        return values
