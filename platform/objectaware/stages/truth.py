"""True masks and boxes of a configured data set."""

from __future__ import annotations

import hashlib

from objectaware.config import DataConfig
from objectaware.data.manifest import Manifest
from objectaware.data.truth import GroundTruth, has_truth
from objectaware.errors import InputError


def true_objects(data: DataConfig, image_ids: list[str], *, needs_boxes: bool = True) -> GroundTruth:
    """Open the true masks and, where they are needed, boxes of a data set.

    Raises:
        InputError: It has none, or their files are missing or malformed.
    """
    return GroundTruth(data.root, data.layout, data.split, image_ids, metadata=data.metadata, needs_boxes=needs_boxes)


def find_true_objects(
    data: DataConfig, image_ids: list[str], *, needs_boxes: bool = True
) -> tuple[GroundTruth | None, str]:
    """Open the true masks and boxes of a data set for a use that can do without them.

    Returns:
        They, or None where the data set has none that was downloaded, or none that can be used; in the last case with
        a line that says why, else with an empty one.
    """
    try:
        if not has_truth(data.root, data.layout, data.split, variant=data.variant, metadata=data.metadata):
            return None, ""
        return true_objects(data, image_ids, needs_boxes=needs_boxes), ""
    except InputError as error:
        return None, f"the true masks and boxes are not used: {error}"


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
