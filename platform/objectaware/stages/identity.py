"""A stage's identity, a short name derived from all that decides its result, and the folder that belongs to it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from pydantic_core import to_jsonable_python

from objectaware.config import DataConfig, Model
from objectaware.data.dataset import Dataset
from objectaware.data.storage import Storage, is_temporary
from objectaware.errors import InputError
from objectaware.methods.checkpoint import checkpoint_file, read_classifier, recorded_hash
from objectaware.model import Execution, points_to
from objectaware.stages.lease import LEASE_FILE, LEASE_FOLDER

STAGE_FILE = "stage.json"
"""Description of a folder's content. A stage writes this file first."""
RESULT_FILE = "result.json"
"""Results of a stage. A stage writes this file last."""
SWEEP = "sweep"

TRAINING_OUTPUTS = (
    *("train/epoch_*/", "train/kept/epoch_*/"),
    *("train/checkpoint_manager_snapshot.json", "train/.validate_storage_marker"),  # Ray Train's own
)
"""Patterns of the files that a training leaves in its stage's folder."""
SWEEP_OUTPUTS = ("sweep.json", "metric.png", "trials/*.json", "begun/*")

_NUM_SHOWN = 5
_IDENTITY_LENGTH = 20


def recipe(config: Model) -> dict[str, Any]:
    """Return the part of a configuration that decides the result, chosen by the types of its fields.

    Addresses are left out, since the inputs hold the hash of the content instead. `Execution`, how the stage runs, is
    left out too.
    """
    return {
        name: _decisive(getattr(config, name))
        for name, field in type(config).model_fields.items()
        if points_to(field) is None and not isinstance(getattr(config, name), Execution)
    }


def _decisive(value: object) -> Any:  # noqa: ANN401 - JSON is any value
    """Return the value as JSON, without the addresses and executions of models inside it."""
    if isinstance(value, Model):
        return recipe(value)
    if isinstance(value, Mapping):
        return {key: _decisive(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_decisive(item) for item in value]
    return to_jsonable_python(value)


def stage_identity(kind: str, version: int, recipe_part: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """Hash all that decides a stage's result.

    Args:
        kind: Kind of the stage.
        version: Version of the code that computes it.
        recipe_part: The recipe, including the seed.
        inputs: Content hash of each input.

    Returns:
        20 hexadecimal digits.
    """
    decisive = {"stage": kind, "version": version, "recipe": recipe_part, "inputs": dict(inputs)}
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:_IDENTITY_LENGTH]


def data_hash(data: DataConfig, *, verify: bool = False) -> str:
    """Hash a data set that is not needed open for anything else; see `Dataset.content_hash`."""
    return Dataset.of(data).content_hash(verify)


def checkpoint_hash(address: str) -> str:
    """Hash the file that holds a checkpoint's weights.

    Raises:
        InputError: There is no checkpoint.
    """
    storage, name = checkpoint_file(address)
    return recorded_hash(storage, name) or hashlib.sha256(storage.read_bytes(name)).hexdigest()


def classifier_hash(address: str) -> str:
    """Hash the file of a classifier.

    Raises:
        InputError: There is no classifier.
    """
    return hashlib.sha256(read_classifier(address)).hexdigest()


def mask_store_hash(folder: str) -> str:
    """Return the identity of the localization that filled a mask store.

    Raises:
        InputError: There is no finished mask store in the folder.
    """
    storage = Storage.from_uri(folder)
    if not storage.exists("store.json"):
        problem = "holds no finished mask store (store.json)"
        raise InputError("masks", folder, problem, "Run objectaware localize first.")
    return str(storage.read_json("store.json")["identity"])


def masks_hash(address: str) -> str:
    """Return the identity of masks to be scored: a mask store, a COCO result file, or a folder of any system's masks.

    A folder's files are identified by their names, sizes and times.

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


STAND_IN = "/computed-by-an-earlier-stage"
"""Address in place of the outcome of a stage that has not run."""
ADDRESS_HASHES: Mapping[str, Callable[[str], str]] = {
    "checkpoint": checkpoint_hash,
    "classifier": classifier_hash,
    "masks": masks_hash,
}
"""Functions that hash the content of an address, by what it points to (`objectaware.model.PointsTo`)."""


def made_by(address: str) -> str | None:
    """Return the identity of the stage in whose folder an address lies; None if it lies elsewhere."""
    found = re.findall(rf"/([0-9a-f]{{{_IDENTITY_LENGTH}}})/", address)
    return str(found[-1]) if found else None


def named_data_sets(config: Model) -> Iterator[tuple[str, DataConfig]]:
    """Yield each data set of a configuration with its field's name, or `test NAME` for the one of a name in `tests`."""
    for field, value in vars(config).items():
        if isinstance(value, DataConfig):
            yield field, value
        elif isinstance(value, dict):
            named = ((f"{field.removesuffix('s')} {name}", data) for name, data in value.items())
            yield from ((name, data) for name, data in named if isinstance(data, DataConfig))


def data_sets(parts: Iterable[Model]) -> Iterator[DataConfig]:
    """Yield each data set of the configurations once."""
    seen = set()
    for part in parts:
        for _, data in named_data_sets(part):
            if (text := data.model_dump_json()) not in seen:
                seen.add(text)
                yield data


def require_own(folder: Storage, identity: str) -> None:
    """Refuse a folder that holds files, unless they are of the same stage.

    Args:
        folder: Folder to which a stage is to write.
        identity: Identity of the stage.

    Raises:
        InputError: The folder is another stage's, or holds files but no `stage.json`.
    """
    remedy = "Give another folder: one that does not exist yet, or is empty."
    parent, name = folder.split()
    if name and parent.is_file(name):
        raise InputError("out", folder.uri, "is a file", remedy)
    if not folder.exists(STAGE_FILE):
        foreign = [name for name in folder.list_entries() if name != LEASE_FOLDER and not is_temporary(name)]
        names = folder.child(LEASE_FOLDER).list_entries()
        foreign += [name for name in names if not (LEASE_FILE.fullmatch(name) or is_temporary(name))]
        if foreign:
            problem = f"holds files that no stage of objectaware has written ({shown_names(foreign)})"
            raise InputError("out", folder.uri, problem, remedy)
        return
    record = folder.read_json(STAGE_FILE)
    owner = record.get("identity") if isinstance(record, Mapping) else None
    if owner != identity:
        problem = f"belongs to another run ({owner}, this one is {identity})"
        raise InputError("out", folder.uri, problem, "Give another folder.")


def delete_outputs(folder: Storage, patterns: Sequence[str]) -> list[str]:
    """Delete a stage's outputs. Keep its lease and `stage.json`, which mark the folder as the stage's own.

    Args:
        folder: Folder of the stage.
        patterns: Patterns of the paths that the stage writes; see `objectaware.stages.runner.Stage.outputs`.

    Returns:
        Names of the files that are not outputs of the stage and stay.
    """
    folder.delete(RESULT_FILE)  # first: otherwise a half-deleted stage would be reused as a complete one
    names = [name for name, _, _ in folder.list_files()]
    outputs = [name for name in names if _is_output(name, patterns)]
    folder.delete_files(outputs)
    kept = {name for name in names if name == STAGE_FILE or name.startswith(f"{LEASE_FOLDER}/")}
    return sorted({*names} - {*outputs} - kept)


def shown_names(names: Iterable[str]) -> str:
    """Return the first few names, and the number of the others."""
    shown = list(names)
    more = f" and {len(shown) - _NUM_SHOWN} more" if len(shown) > _NUM_SHOWN else ""
    return ", ".join(shown[:_NUM_SHOWN]) + more


def _is_output(name: str, patterns: Sequence[str]) -> bool:
    path = PurePosixPath("/", name)
    if is_temporary(path.name) or name == RESULT_FILE:
        return True
    # A pattern that begins with a slash matches whole paths, one component at a time.
    return any(
        place.match(f"/{pattern}")
        for pattern in patterns
        for place in ([path, *path.parents] if pattern.endswith("/") else [path])
    )
