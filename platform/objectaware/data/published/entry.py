"""What is known of a published data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PublishedSet:
    """A data set that others published.

    Attributes:
        name: As in `datasets` of the paper's tables (`paper/tables/*.yaml`).
        folder: Where it lies under the data folder by default, as `jobs/recipes/base/*.yaml` have it.
        licence: Terms of use, in short; those of the source hold.
        source: Where to get it.
        parts: Fields of `DataConfig` other than `root` by part. A value that starts with `@data/` is a path under the
            data folder.
        num_images: Published number of images by part, where it is known.
        note: What else a user must know, in a sentence.
    """

    name: str
    folder: str
    licence: str
    source: str
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    num_images: Mapping[str, int] = field(default_factory=dict)
    note: str = ""


_WSOL_METADATA = "@data/wsolevaluation/metadata"


def wsolevaluation_parts(name: str) -> dict[str, dict[str, str]]:
    """The parts that wsolevaluation has boxes or masks of."""
    return {
        f"wsol-{split}": {"layout": "wsolevaluation", "split": split, "metadata": f"{_WSOL_METADATA}/{name}"}
        for split in ("val", "test")
    }
