import hashlib
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np
import pytest
from PIL import Image

from objectaware.config import DataConfig, PretrainConfig
from objectaware.config.variants import Variant, option_fields
from objectaware.data.dataset import Dataset
from objectaware.errors import InputError
from objectaware.model import points_to
from objectaware.stages.identity import (
    checkpoint_hash,
    data_hash,
    mask_store_hash,
    recipe,
    stage_identity,
)


def _config(**fields: object) -> PretrainConfig:
    return PretrainConfig.model_validate({"data": {"root": "photos"}, "backbone": "resnet10_narrow", **fields})


def _identity(config: PretrainConfig, **inputs: str) -> str:
    return stage_identity("pretrain", 1, recipe(config), {"data": "d", **inputs})


def test_how_and_where_a_stage_runs_is_no_part_of_it() -> None:
    moved = _config(data={"root": "/elsewhere"}, execution={"num_workers": 2, "num_loader_threads": 7})
    assert _identity(_config()) == _identity(moved)


@pytest.mark.parametrize(
    "fields",
    [
        {"seed": 1},
        {"method": "byol"},
        {"num_epochs": 7},
        {"method": {"temperature": 0.1}},
        {"color_jitter": [0.1, 0.1, 0.1, 0.1]},
    ],
)
def test_what_decides_the_result_is(fields: dict[str, object]) -> None:
    assert _identity(_config()) != _identity(_config(**fields))


def test_the_inputs_content_is() -> None:
    assert _identity(_config()) != _identity(_config(), masks="m")


def test_a_spelled_out_default_is_the_default() -> None:
    assert _identity(_config()) == _identity(
        _config(method={"name": "moco", "momentum": 0.999, "queue_size": 65536}, policy="none")
    )


VARIANTS = [(field, name) for field, option in option_fields(PretrainConfig).items() for name in option.variants()]


def _other(value: object, annotation: object) -> object:
    """Another value of a field of that type."""
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(one for one in get_args(annotation) if one is not NoneType)
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Literal:
        return next(one for one in get_args(annotation) if one != value)
    if isinstance(value, bool):
        return not value
    assert isinstance(value, int | float), "teach this function the type"
    if value == 0:
        return 0.5
    return 2 * value if isinstance(value, int) else value / 2


def _needed(variant: type[Variant]) -> dict[str, object]:
    """Values of the fields that have no default: addresses and numbers."""
    required = {key: info for key, info in variant.model_fields.items() if info.is_required() and key != "name"}
    return {key: 0.5 if points_to(info) is None else "there" for key, info in required.items()}


@pytest.mark.parametrize(("field", "name"), VARIANTS)
def test_every_field_of_every_variant_is_part_of_it(field: str, name: str) -> None:
    """A field that is serialised as its option's base would drop them, and two trainings would be one."""
    needed = _needed(option_fields(PretrainConfig)[field].variants()[name])
    # Of the methods, some learn from labels.
    data = {"root": "photos", "layout": "class-folders"}
    fields: dict[str, Any] = {"data": data, field: {"name": name, **needed}}
    before = _config(**fields)
    variant = getattr(before, field)
    identities = {_identity(before)}
    # Masks are an address, whose content is an input of the stage.
    changeable = {name: info for name, info in type(variant).model_fields.items() if name not in ("name", "masks")}
    for key, info in changeable.items():
        changed = {**fields, field: {**fields[field], key: _other(getattr(variant, key), info.annotation)}}
        identities.add(_identity(_config(**changed)))
    assert len(identities) == len(changeable) + 1


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for index in range(3):
        Image.fromarray(np.full((8, 8, 3), index, dtype=np.uint8)).save(tmp_path / f"{index}.png")
    return tmp_path


def test_a_data_set_changes_with_its_files(photos: Path) -> None:
    data = DataConfig(root=str(photos))
    before = data_hash(data)
    assert data_hash(data) == before
    (photos / "2.png").unlink()
    assert data_hash(data) != before


def test_a_copied_data_set_is_the_same_when_verified(photos: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(photos, copy, ignore=shutil.ignore_patterns("copy"), copy_function=shutil.copyfile)
    first, second = (DataConfig(root=str(root)) for root in (copy, copy))
    shutil.copytree(copy, tmp_path / "again", copy_function=shutil.copyfile)
    again = DataConfig(root=str(tmp_path / "again"))
    assert data_hash(first, verify=True) == data_hash(second, verify=True) == data_hash(again, verify=True)


def test_true_masks_change_with_the_files_that_they_are_read_from(tmp_path: Path) -> None:
    for variant in ("original", "only_fg"):
        folder = tmp_path / variant / "train" / "00_dog"
        folder.mkdir(parents=True)
        for number in range(2):
            Image.fromarray(np.full((8, 8, 3), number, dtype=np.uint8)).save(folder / f"{number}.JPEG")
    data = DataConfig(root=str(tmp_path), layout="backgrounds-challenge", split="train")
    before, verified = Dataset.of(data).training_truth_hash(), Dataset.of(data).training_truth_hash(verify=True)
    changed = tmp_path / "only_fg" / "train" / "00_dog" / "1.JPEG"
    changed.write_bytes(changed.read_bytes() + b" ")
    assert Dataset.of(data).training_truth_hash() != before
    assert Dataset.of(data).training_truth_hash(verify=True) != verified


def test_a_checkpoints_identity_is_its_states_hash_which_may_be_written_beside_it(tmp_path: Path) -> None:
    (tmp_path / "state.pt").write_bytes(b"weights")
    read = checkpoint_hash(str(tmp_path))
    assert read == hashlib.sha256(b"weights").hexdigest()
    (tmp_path / "state.sha256").write_text(f"{'0' * 64}  state.pt\n")
    assert checkpoint_hash(str(tmp_path)) == "0" * 64  # without reading the state
    (tmp_path / "state.sha256").write_text("half a has")
    with pytest.raises(InputError, match=r"state\.sha256: does not begin with a SHA-256"):
        checkpoint_hash(str(tmp_path))


def test_missing_inputs_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"state\.pt"):
        checkpoint_hash(str(tmp_path))
    with pytest.raises(InputError, match=r"store\.json"):
        mask_store_hash(str(tmp_path))
