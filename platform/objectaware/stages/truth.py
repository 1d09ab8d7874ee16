"""True masks and boxes of a configured data set."""

from __future__ import annotations

import hashlib

from objectaware.config import DataConfig
from objectaware.data.manifest import Manifest
from objectaware.data.truth import GroundTruth, has_truth


def true_objects(data: DataConfig, image_ids: list[str]) -> GroundTruth:
    """Opens the true masks and boxes of a data set.

    Raises:
        InputError: It has none, or their files are missing or malformed.
    """
    return GroundTruth(data.root, data.layout, data.split, image_ids, metadata=data.metadata)


def find_true_objects(data: DataConfig, image_ids: list[str]) -> GroundTruth | None:
    """Opens them where the data set has some and they were downloaded; else None."""
    if not has_truth(data.root, data.layout, data.split, variant=data.variant, metadata=data.metadata):
        return None
    return true_objects(data, image_ids)


def true_objects_hash(data: DataConfig, *, verify: bool = False) -> str:
    """Hashes the files of true masks and boxes: names, sizes and times.

    Args:
        data: The data set.
        verify: Hash the files' content instead of their times.
    """
    return truth_files_hash(true_objects(data, data.open().image_ids), verify=verify)


def truth_files_hash(truth: GroundTruth, *, verify: bool = False) -> str:
    """The same of masks and boxes that are open."""
    text = "".join(Manifest.of(folder).content_hash(verify) for folder in truth.files)
    return hashlib.sha256(text.encode()).hexdigest()
