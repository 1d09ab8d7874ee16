"""What all configuration shares: the base model, kinds of values, and images on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from objectaware.data.crops import CroppedObjects
    from objectaware.data.folder import ImageFolder
    from objectaware.data.shards import PackedImages


def _absolute(address: str) -> str:
    """Ray starts workers in folders of their own, where a relative path would name another place."""
    return address if "://" in address else str(Path(address).expanduser().absolute())


Address = Annotated[str, AfterValidator(_absolute)]
"""Path or URI; a path is relative to the folder that the command was started in, and made absolute at once."""
Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(ge=1)]
Byte = Annotated[int, Field(ge=0, le=255)]
Layout = Literal["folder", "class-folders", "backgrounds-challenge", "coco", "coco-crop", "shards"]


class Model(BaseModel):
    """Base of all configuration: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def filled(values: dict[str, object], defaults: Mapping[str, object]) -> dict[str, object]:
    """Fields as given, and the defaults of those that are missing or None, so that a stored recipe says them all."""
    return {**values, **{name: value for name, value in defaults.items() if values.get(name) is None}}


class DataConfig(Model):
    """A set of images on disk.

    Attributes:
        root: The folder.
        layout: How images lie in it: `folder` any photos at any depth, `class-folders` one folder a class,
            `backgrounds-challenge` and `coco` as published, `coco-crop` the objects cut out of a COCO folder,
            `shards` what `objectaware data pack` wrote, in any store.
        variant: Variant of the Backgrounds Challenge.
        split: `train` or `val`, for the published layouts.
        subset: List of the images that count, one path relative to the images' folder a line; by default all do.
        shuffle_window: Of the layout `shards`: an epoch goes through the shards in a random order, and through the
            rows of so many shards at a time in a random order. A process keeps at most twice as many in memory.
    """

    root: Address
    layout: Layout = "folder"
    variant: str | None = None
    split: Literal["train", "val"] | None = None
    subset: Address | None = None
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
        published = self.layout in ("backgrounds-challenge", "coco", "coco-crop")
        if published and self.split is None:
            raise ValueError(f"split is missing: the layout {self.layout} has train and val")
        if not published and self.split is not None:
            raise ValueError(f"split = {self.split} has no meaning for the layout {self.layout}; leave it out")
        if self.variant is not None and self.layout != "backgrounds-challenge":
            raise ValueError(f"variant = {self.variant} has no meaning for the layout {self.layout}; leave it out")
        if self.subset is not None and self.layout in ("coco-crop", "shards"):
            problem = f"subset has no meaning for the layout {self.layout}, whose images are no files"
            raise ValueError(f"{problem}; leave it out")
        if self.shuffle_window is not None and self.layout != "shards":
            raise ValueError(f"shuffle_window has no meaning for the layout {self.layout}; leave it out")
        return self

    def open(self) -> ImageFolder | CroppedObjects | PackedImages:
        """Opens the images.

        Raises:
            InputError: Something is missing or malformed.
        """
        from objectaware.data.catalog import open_images  # here, or every --help would wait for it

        return open_images(
            self.root,
            self.layout,
            variant=self.variant,
            split=self.split,
            subset=self.subset,
            shuffle_window=self.shuffle_window or 1,
        )
