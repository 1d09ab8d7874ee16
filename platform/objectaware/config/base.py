"""What the configurations of trainings share."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from objectaware.model import Execution

Precision = Literal["fp32", "bf16"]


class TrainingExecution(Execution):
    """Base of how a training runs: what changes speed and place, and never a number.

    Attributes:
        moved: Fields that recipes used to have here and that are fields of the recipe itself now.
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
