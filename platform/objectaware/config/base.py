"""What all configuration shares: the base model, kinds of values, and images on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from objectaware.data.layouts import LayoutName, layout_named

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from objectaware.data.catalog import OpenedImages


def _absolute(address: str) -> str:
    """Ray starts workers in folders of their own, where a relative path would name another place."""
    return address if "://" in address else str(Path(address).expanduser().absolute())


@dataclass(frozen=True)
class PointsTo:
    """Mark of a type: its values are addresses, and the content there decides a result in their place.

    Attributes:
        content: What lies there: `checkpoint`, `classifier`, `masks`, or `part` for a part of something else that is
            hashed whole, such as a data set.
    """

    content: str


Address = Annotated[str, AfterValidator(_absolute), PointsTo("part")]
"""Path or URI; a path is relative to the folder that the command was started in, and made absolute at once."""
CheckpointAddress = Annotated[str, AfterValidator(_absolute), PointsTo("checkpoint")]
ClassifierAddress = Annotated[str, AfterValidator(_absolute), PointsTo("classifier")]
MasksAddress = Annotated[str, AfterValidator(_absolute), PointsTo("masks")]
Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(ge=1)]
Minutes = Annotated[float, Field(gt=0)]
Byte = Annotated[int, Field(ge=0, le=255)]
Layout = LayoutName
Precision = Literal["fp32", "bf16"]


class Model(BaseModel):
    """Base of all configuration: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def points_to(field: FieldInfo) -> str | None:
    """Return what the addresses in a field point to, however they are nested in its type; None where it holds none."""
    return _points_to(field.annotation, field.metadata)


def _points_to(annotation: object, metadata: Sequence[object] = ()) -> str | None:
    marks: list[str | None] = [one.content for one in metadata if isinstance(one, PointsTo)]
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        marks.append(_points_to(inner, more))
    elif not isinstance(annotation, type):
        marks += map(_points_to, get_args(annotation))
    return next((mark for mark in marks if mark is not None), None)


class Execution(Model):
    """Base of how a stage runs: what changes speed and place, and never a number."""


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


def filled(values: dict[str, object], defaults: Mapping[str, object]) -> dict[str, object]:
    """Fields as given, and the defaults of those that are missing or None, so that a stored recipe says them all."""
    return {**values, **{name: value for name, value in defaults.items() if values.get(name) is None}}


class DataConfig(Model):
    """A set of images on disk.

    Which of the fields a layout takes is in `objectaware.data.layouts`.

    Attributes:
        root: The folder.
        layout: How images lie in it: `folder` any photos at any depth, `class-folders` one folder a class, `shards`
            what `objectaware data pack` wrote, in any store, and the published layouts of docs/data.md.
        variant: Variant of the data set, such as `mixed_rand` of the Backgrounds Challenge.
        split: Part of the data set, such as `train` or `val`.
        subset: List of the images that count, one path relative to the images' folder a line; by default all do.
        classes: `imagenet-9`: labels are the nine superclasses of ImageNet-9, and images of other classes are left
            out.
        metadata: Folder or file of labels and boxes that lie apart from the images.
        shuffle_window: Of the layout `shards`: an epoch goes through the shards in a random order, and through the
            rows of so many shards at a time in a random order. A process keeps at most twice as many in memory.
    """

    root: Address
    layout: Layout = "folder"
    variant: str | None = None
    split: str | None = None
    subset: Address | None = None
    classes: Literal["imagenet-9"] | None = None
    metadata: Address | None = None
    shuffle_window: Positive | None = None

    @model_validator(mode="before")
    @classmethod
    def _fill_window(cls, values: object) -> object:
        """Writes the default that depends on the layout out, so that a stored recipe says it."""
        if isinstance(values, dict) and values.get("layout") == "shards":
            return filled(values, {"shuffle_window": 4})
        return values

    @model_validator(mode="after")
    def _fits_layout(self) -> Self:
        layout = layout_named(self.layout)
        self._require("split", layout.splits)
        self._require("variant", layout.variants, default=layout.default_variant)
        if self.subset is not None and not layout.are_files:
            problem = f"subset has no meaning for the layout {self.layout}, whose images are no files"
            raise ValueError(f"{problem}; leave it out")
        self._allow("classes", layout.has_superclasses)
        self._allow("metadata", layout.has_metadata)
        if layout.has_metadata and self.metadata is None:
            raise ValueError(f"metadata is missing: labels and boxes of the layout {self.layout} lie apart")
        self._allow("shuffle_window", self.layout == "shards")
        return self

    def _require(self, field: str, choices: tuple[str, ...], default: str | None = None) -> None:
        """Refuses a choice that the layout does not have, and the lack of one that it has without a default."""
        value: str | None = getattr(self, field)
        self._allow(field, bool(choices))
        if value is None and choices and default is None:
            raise ValueError(f"{field} is missing: the layout {self.layout} has {', '.join(choices)}")
        if value is not None and value not in choices:
            raise ValueError(f"{field} = {value} is unknown: the layout {self.layout} has {', '.join(choices)}")

    def _allow(self, field: str, has_meaning: bool) -> None:
        value = getattr(self, field)
        if value is not None and not has_meaning:
            raise ValueError(f"{field} = {value} has no meaning for the layout {self.layout}; leave it out")

    def open(self) -> OpenedImages:
        """Opens the images.

        Raises:
            InputError: Something is missing or malformed.
        """
        from objectaware.data.catalog import open_images  # here, or whatever reads a recipe would wait for it

        return open_images(
            self.root,
            self.layout,
            variant=self.variant,
            split=self.split,
            subset=self.subset,
            classes=self.classes,
            metadata=self.metadata,
            shuffle_window=self.shuffle_window or 1,
        )
