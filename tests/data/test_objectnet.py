from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from objectaware.config import DataConfig
from objectaware.data.sets.imagenet_shifts import BorderlessImages
from objectaware.errors import InputError
from objectaware.stages.identity import data_hash
from opened_parts import open_part
from published_classes import write_objectnet

load_objectnet = partial(open_part, "objectnet")


@pytest.mark.parametrize("above", ["", "objectnet-1.0"])
def test_pictures_have_no_border_and_names_from_the_mapping(tmp_path: Path, above: str) -> None:
    (tmp_path / above).mkdir(exist_ok=True)
    write_objectnet(tmp_path / above)
    images = load_objectnet(tmp_path)
    assert images.class_names == ("Air freshener", "Bicycle", "Chair")
    assert images.labels is not None
    assert images.labels.tolist() == [0, 1, 2]
    picture = images.read(1)
    assert picture.shape == (5, 8, 3)
    assert np.unique(picture.reshape(-1, 3), axis=0).tolist() == [[0, 0, 255]]


def test_one_class_lies_in_the_superclasses(tmp_path: Path) -> None:
    write_objectnet(tmp_path)
    images = DataConfig(root=str(tmp_path), layout="objectnet", classes="imagenet-9").open()
    assert isinstance(images, BorderlessImages)
    assert images.image_ids == ["bicycle/bicycle.png"]
    assert images.labels is not None
    assert images.labels.tolist() == [2]
    assert images.read(0).shape == (5, 8, 3)
    assert len(data_hash(DataConfig(root=str(tmp_path), layout="objectnet"))) == 64


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"holds no {tmp_path}/mappings/folder_to_objectnet_label.json"):
        load_objectnet(tmp_path)
    write_objectnet(tmp_path)
    data = DataConfig(root=str(tmp_path), layout="objectnet", classes="imagenet-9")
    mapping = tmp_path / "mappings" / "pytorch_to_imagenet_2012_id.json"
    mapping.write_text(json.dumps({"671": 2, "151": 1}))
    with pytest.raises(InputError, match="has no line 'bicycle-built-for-two, tandem bicycle, tandem'"):
        data.open()
    mapping.unlink()
    with pytest.raises(InputError, match=f"{mapping}: does not exist"):
        data.open()
    (tmp_path / "mappings" / "folder_to_objectnet_label.json").write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        load_objectnet(tmp_path)
