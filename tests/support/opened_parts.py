"""Open a part of a published data set by its layout alone, without a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from objectaware.data.layouts import Place, layout_named


def place_of(root: str | Path, split: str = "", *, variant: str = "", metadata: str | Path = "") -> Place:
    return Place(str(root), variant=variant, split=split, metadata=str(metadata))


def open_part(layout: str, root: str | Path, split: str = "", *, variant: str = "", metadata: str | Path = "") -> Any:
    return layout_named(layout).open(place_of(root, split, variant=variant, metadata=metadata))
