"""A stage's identity: what decides its result, as one short name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from objectaware.config import DataConfig, Model
from objectaware.data.dataset import Dataset
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.methods.checkpoint import checkpoint_file
from objectaware.methods.classifier import read_classifier

STAGE_VERSIONS = {
    "pretrain": 4,
    "localize": 3,
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
    """Hashes a data set that is opened for nothing else; see `Dataset.content_hash`."""
    return Dataset(data).content_hash(verify)


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
