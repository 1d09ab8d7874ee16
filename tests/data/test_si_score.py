from __future__ import annotations

from pathlib import Path

import pytest

from objectaware.config import DataConfig
from objectaware.data.folder import ImageFolder
from objectaware.data.sets.imagenet import SUPERCLASSES, class_of_si_score, superclass_of_class
from objectaware.errors import InputError
from opened_parts import open_part
from published_classes import write_classes


def load_si_score(root: Path, variant: str) -> ImageFolder:
    return open_part("si-score", root, variant=variant)


NAMES = ["zebra", "brown bear", "pitcher (container)", "magpie"]


@pytest.mark.parametrize("above", ["object_size", "object_size/area", "area", "size/area"])
def test_names_of_folders_are_classes_of_imagenet(tmp_path: Path, above: str) -> None:
    write_classes(tmp_path / above, NAMES, suffix=".jpg")
    (tmp_path / above / "foreground_classes.csv").write_text("in the store, too")
    images = load_si_score(tmp_path, "size")
    assert images.labels is not None
    assert images.image_ids[0] == "brown bear/brown bear_0.jpg"
    assert images.labels.tolist() == [294, 18, 725, 340]


def test_factors_lie_in_folders_of_their_own(tmp_path: Path) -> None:
    write_classes(tmp_path / "location20_area02_min0pc", NAMES)
    write_classes(tmp_path / "rotation", NAMES[:1])
    assert len(load_si_score(tmp_path, "location")) == 4
    assert len(load_si_score(tmp_path, "rotation")) == 1
    with pytest.raises(InputError, match=f"holds no class folder such as {tmp_path}/object_size/ambulance"):
        load_si_score(tmp_path, "size")


def test_superclasses_are_four_of_the_nine(tmp_path: Path) -> None:
    write_classes(tmp_path / "object_rotation", NAMES)
    images = DataConfig(root=str(tmp_path), layout="si-score", variant="rotation", classes="imagenet-9").open()
    assert images.labels is not None
    assert images.labels.tolist() == [4, 1]
    covered = {SUPERCLASSES[label] for label in superclass_of_class()[list(class_of_si_score().values())] if label >= 0}
    assert covered == {"01_bird", "02_wheeled vehicle", "04_carnivore", "06_musical instrument"}
    assert len(class_of_si_score()) == 112


def test_another_folder_is_refused(tmp_path: Path) -> None:
    write_classes(tmp_path / "object_size", [*NAMES, "unicorn"])
    with pytest.raises(InputError, match="unicorn: is not one of SI-Score's classes"):
        load_si_score(tmp_path, "size")
