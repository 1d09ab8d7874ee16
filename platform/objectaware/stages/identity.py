"""A stage's identity: what decides its result, as one short name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from objectaware.config import DataConfig, Model
from objectaware.data.backgrounds_challenge import TrainingForegrounds
from objectaware.data.coco import instances_file
from objectaware.data.folder import ImageFolder
from objectaware.data.manifest import Manifest
from objectaware.data.shards import PackedImages, shard_name
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.methods.checkpoint import checkpoint_file
from objectaware.methods.classifier import read_classifier
from objectaware.stages.truth import true_objects_hash

STAGE_VERSIONS = {
    "pretrain": 4,
    "localize": 4,
    "features": 2,
    "linear": 5,
    "knn": 2,
    "few_shot": 2,
    "class_distance": 2,
    "localization": 4,
    "detection": 2,
}
"""Version of the code that computes each stage: raised when the same input would give another result."""

_IDENTITY_LENGTH = 20


def recipe(config: Model) -> dict[str, Any]:
    """The part of a configuration that decides the result.

    What only says how it runs (`execution`) and where inputs lie (addresses) is left out: the inputs' content
    stands in the identity instead.
    """
    return _without_addresses(config.model_dump(mode="json", exclude={"execution"}))


def _without_addresses(value: Any) -> Any:  # noqa: ANN401 - JSON is any value
    if isinstance(value, dict):
        addresses = ("root", "subset", "metadata", "masks", "checkpoint", "classifier", "published")
        return {key: _without_addresses(item) for key, item in value.items() if key not in addresses}
    return value


def stage_identity(stage: str, recipe_part: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """Hashes what decides a stage's result.

    Args:
        stage: Name of the stage, a key of `STAGE_VERSIONS`.
        recipe_part: The recipe, with the seed in it.
        inputs: Content hash of each input.

    Returns:
        20 hexadecimal digits.
    """
    text = json.dumps(
        {"stage": stage, "version": STAGE_VERSIONS[stage], "recipe": recipe_part, "inputs": dict(inputs)},
        sort_keys=True,
    )
    return hashlib.sha256(text.encode()).hexdigest()[:_IDENTITY_LENGTH]


def data_hash(data: DataConfig, *, verify: bool = False) -> str:
    """Hashes a data set: names, sizes and times of its images, and its annotations.

    Args:
        data: The data set.
        verify: Hash the images' content instead of their times.
    """
    if data.layout == "shards":
        return _pack_hash(data.root, verify)
    images = data.open()
    assert not isinstance(images, PackedImages)
    files = images if isinstance(images, ImageFolder) else images.files
    digest = hashlib.sha256(Manifest.of(files).content_hash(verify).encode())
    if images.labels is not None:
        # Some lie in files of their own; names decide which classes of two data sets are the same.
        digest.update(images.labels.tobytes())
        digest.update(json.dumps(list(images.class_names)).encode())
    digest.update(annotation_bytes(data))
    return digest.hexdigest()


def annotation_bytes(data: DataConfig) -> bytes:
    """Content of the file that says what images show, where it is one for all of them; else nothing."""
    if data.layout in ("coco", "coco-crop"):
        assert data.split is not None
        return instances_file(data.root, data.split).read_bytes()
    return b""


def _pack_hash(root: str, verify: bool) -> str:
    """Hashes what a pack says of its images and settings, or its shards' content; not where it came from."""
    description = PackedImages.describe(root)
    digest = hashlib.sha256(json.dumps({**description, "source": None}, sort_keys=True).encode())
    if verify:
        storage = Storage.from_uri(root)
        for number in range(len(description["shard_sizes"])):
            digest.update(hashlib.sha256(storage.read_bytes(shard_name(number))).digest())
    return digest.hexdigest()


def checkpoint_hash(address: str) -> str:
    """Hashes the file that holds a checkpoint's weights.

    Raises:
        InputError: There is no checkpoint.
    """
    storage, name = checkpoint_file(address)
    return hashlib.sha256(storage.read_bytes(name)).hexdigest()


def classifier_hash(address: str) -> str:
    """Hashes the file of a classifier.

    Raises:
        InputError: There is none.
    """
    return hashlib.sha256(read_classifier(address)).hexdigest()


def mask_store_hash(folder: str) -> str:
    """Identity of the localization that filled a mask store.

    Raises:
        InputError: There is no finished mask store in the folder.
    """
    storage = Storage.from_uri(folder)
    if not storage.exists("store.json"):
        raise InputError(
            "masks", folder, "holds no finished mask store (store.json)", "Run objectaware localize first."
        )
    return str(storage.read_json("store.json")["identity"])


def true_masks_hash(data: DataConfig, *, verify: bool = False) -> str:
    """Hashes the files of a data set's own masks: names, sizes and times.

    Args:
        data: The data set.
        verify: Hash the files' content instead of their times.

    Raises:
        InputError: The data set has none.
    """
    if data.layout in ("coco", "shards"):
        return "annotations"  # a part of `data_hash`
    if data.layout != "backgrounds-challenge":
        return true_objects_hash(data, verify=verify)
    assert data.split is not None
    foregrounds = TrainingForegrounds(data.root, data.split, data.open().image_ids)
    return Manifest.of(foregrounds.files).content_hash(verify)


def masks_hash(address: str) -> str:
    """Identity of masks to be scored: of a mask store, a COCO result file, or a folder of masks of any system.

    A folder's files are told by their names, sizes and times.

    Raises:
        InputError: There is nothing at the address.
    """
    storage = Storage.from_uri(address)
    if storage.exists("store.json"):
        return mask_store_hash(address)
    if address.endswith(".json"):
        folder, name = storage.split()
        if folder.exists(name):
            return hashlib.sha256(folder.read_bytes(name)).hexdigest()
    digest = hashlib.sha256()
    files = storage.list_files() if not address.endswith(".json") else []
    if not files:
        remedy = "Give a mask store, a folder of PNG or NPY files, or a COCO result file."
        raise InputError("masks", address, "does not exist or is empty", remedy)
    for name, size, modified_ns in files:
        digest.update(f"{name}\0{size}\0{modified_ns}\0".encode())
    return digest.hexdigest()
