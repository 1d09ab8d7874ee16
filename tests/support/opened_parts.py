"""Open a part of a published data set by its layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from objectaware.data.dataset import DataConfig, Dataset


def data_set(
    layout: str, root: str | Path, split: str | None = None, *, variant: str | None = None, metadata: str | None = None
) -> Dataset:
    return Dataset.of(DataConfig(root=str(root), layout=layout, split=split, variant=variant, metadata=metadata))


def open_part(
    layout: str, root: str | Path, split: str | None = None, *, variant: str | None = None, metadata: str | None = None
) -> Any:
    return data_set(layout, root, split, variant=variant, metadata=metadata).open_images()
