"""What the tasks of the stage compute, in this process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

from objectaware.config import DetectionConfig
from objectaware.data.scenes import build_scenes
from objectaware.data.storage import Storage
from objectaware.stages.detection import find_share, known_categories, object_coverage, open_test, score


def _name_category(folder: Path, number: int, name: str) -> None:
    """Gives a category of the test another name."""
    path = folder / "annotations" / "instances_val2017.json"
    content = json.loads(path.read_text())
    (category,) = [one for one in content["categories"] if one["id"] == number]
    category["name"] = name
    path.write_text(json.dumps(content))


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scenes")
    build_scenes(folder, variant="multi-object", num_train=9, num_val=9, image_size=64)
    _name_category(folder, 6, "car")
    (folder / "three").write_text("".join(f"{number:012d}.jpg\n" for number in (2, 3, 5)))
    return folder


def _config(scenes: Path, **fields: object) -> DetectionConfig:
    test = {"root": scenes, "layout": "coco", "split": "val", "subset": scenes / "three"}
    sizes = {"test_short_side": 64, "max_side": 96, "num_test_proposals": 10}
    return DetectionConfig.model_validate({"test": json.loads(json.dumps(test, default=str)), **sizes, **fields})


@pytest.fixture(scope="module")
def published(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network in torchvision's form that calls everything category 3, surely."""
    torch.manual_seed(0)
    network = MaskRCNN(resnet_fpn_backbone(backbone_name="resnet50", weights=None, trainable_layers=5), 91)
    with torch.no_grad():
        network.roi_heads.box_predictor.cls_score.weight.zero_()
        network.roi_heads.box_predictor.cls_score.bias.copy_(5.0 * (torch.arange(91) == 3))
        network.roi_heads.box_predictor.bbox_pred.weight.zero_()
        network.rpn.head.bbox_pred.weight.zero_()
    path = tmp_path_factory.mktemp("published") / "maskrcnn.pth"
    torch.save(network.state_dict(), path)
    return path


def test_shares_of_a_published_network_cover_the_listed_images_with_the_test_s_number_of_the_name(
    scenes: Path, published: Path, tmp_path: Path
) -> None:
    """Label 3 of COCO's networks is a car, which the test numbers 6; its own number 3 is a shape."""
    config = _config(scenes, published=str(published))
    kept = Storage.from_uri(tmp_path)
    shares = [find_share(config, str(published), kept, share, 2) for share in range(2)]
    assert [{record["image_id"] for record in share} for share in shares] == [{2, 5}, {3}]
    records = shares[0] + shares[1]
    assert {record["category_id"] for record in records} == {6}
    assert all(record["segmentation"]["size"] == [64, 64] for record in records)
    known = known_categories(config)
    scores = score(config, records, known)
    assert scores.keys() == {"box", "mask"}
    assert scores["box"][1].keys() <= {"car"}
    coverage = object_coverage(open_test(config), known)
    assert (coverage.num_classes, len(known)) == (1, 80)
    assert score(config, [], known).keys() == {"box"}  # whether it would find masks is told by what it found


def test_a_share_that_is_kept_is_not_computed_again(scenes: Path, tmp_path: Path) -> None:
    kept = Storage.from_uri(tmp_path)
    kept.write_json("share-0001-of-0002.json", [{"image_id": 3}])
    config = _config(scenes, published=str(tmp_path / "missing.pth"))
    assert find_share(config, str(tmp_path / "missing.pth"), kept, 1, 2) == [{"image_id": 3}]


def test_a_fine_tuned_network_s_labels_become_the_test_s_numbers_by_name(
    scenes: Path, tiny_detector: Path, tmp_path: Path
) -> None:
    """The detector knows cats and zebras; of the test's categories, only one is a zebra."""
    annotations = scenes / "annotations" / "instances_val2017.json"
    content = json.loads(annotations.read_text())
    root = tmp_path / "zebras"
    (root / "annotations").mkdir(parents=True)
    (root / "val2017").symlink_to(scenes / "val2017")
    content["categories"][6]["name"] = "zebra"
    (root / "annotations" / annotations.name).write_text(json.dumps(content))
    data = {"root": str(root), "layout": "coco", "split": "val"}
    fields = {"checkpoint": str(tiny_detector), "data": data, "test": data, "test_short_side": 64, "max_side": 96}
    config = DetectionConfig.model_validate({**fields, "num_test_proposals": 10})
    records = find_share(config, str(tiny_detector), Storage.from_uri(tmp_path), 0, 9)
    assert {record["category_id"] for record in records} == {content["categories"][6]["id"]}
    assert score(config, [], ["zebra"]).keys() == {"box", "mask"}
