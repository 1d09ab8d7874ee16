from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from objectaware.config import DataConfig
from objectaware.data.folder import ImageFolder
from objectaware.data.sets.backgrounds_challenge import VARIANTS, Foregrounds
from objectaware.data.truth import GroundTruth
from objectaware.errors import InputError
from opened_parts import data_set, open_part


def load_variant(root: Path, variant: str, split: str) -> ImageFolder:
    return open_part("backgrounds-challenge", root, split, variant=variant)


def load_foreground_mask(root: Path, split: str, image_id: str) -> NDArray[np.bool_]:
    return Foregrounds(data_set("backgrounds-challenge", root, split), [image_id]).mask(0)


def training_foregrounds(root: Path, split: str, image_ids: list[str]) -> GroundTruth:
    return data_set("backgrounds-challenge", root, split).training_truth(image_ids)


CLASSES = ("00_dog", "01_bird", "02_wheeled vehicle", "03_reptile")


def write_variant(folder: Path, classes: tuple[str, ...] = CLASSES) -> None:
    for label, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for number in range(2):
            Image.new("L", (4, 4), 20 * label).save(folder / name / f"n{number}_{label}.JPEG")


def write_mask(folder: Path, image_id: str, mask: NDArray[np.generic]) -> Path:
    path = (folder / image_id).with_suffix(".npy")
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, mask)
    return path


def test_labels_follow_the_numbers_of_the_class_folders(tmp_path: Path) -> None:
    write_variant(tmp_path / "mixed_rand" / "val")
    images = load_variant(tmp_path, "mixed_rand", "val")
    assert images.class_names == CLASSES
    assert images.image_ids[:3] == ["00_dog/n0_0.JPEG", "00_dog/n1_0.JPEG", "01_bird/n0_1.JPEG"]
    assert images.labels is not None
    assert images.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert np.abs(images.read(4).astype(int) - 40).max() <= 1


def test_release_layout_has_val_under_bg_challenge_and_train_beside_it(tmp_path: Path) -> None:
    write_variant(tmp_path / "original" / "train")
    write_variant(tmp_path / "bg_challenge" / "original" / "val")
    write_mask(tmp_path / "bg_challenge" / "fg_mask" / "val", "00_dog/n0_0.JPEG", np.eye(4))
    assert load_variant(tmp_path, "original", "train").root == tmp_path / "original" / "train"
    assert load_variant(tmp_path, "original", "val").root == tmp_path / "bg_challenge" / "original" / "val"
    assert np.array_equal(load_foreground_mask(tmp_path, "val", "00_dog/n0_0.JPEG"), np.eye(4, dtype=bool))


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.float32])
def test_mask_belongs_to_the_picture_of_its_stem(tmp_path: Path, dtype: type[np.generic]) -> None:
    image_id = "02_wheeled vehicle/fg_n02701002_5_bg_n1.0.JPEG"
    truth = np.array([[0, 1, 1], [0, 0, 1]], dtype=dtype)
    path = write_mask(tmp_path / "fg_mask" / "train", image_id, truth)
    assert path.name == "fg_n02701002_5_bg_n1.0.npy"
    mask = load_foreground_mask(tmp_path, "train", image_id)
    assert mask.dtype == np.bool_
    assert mask.tolist() == [[False, True, True], [False, False, True]]


def test_unknown_variant_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"mixed-rand.*mixed_rand, mixed_next"):
        DataConfig(root=str(tmp_path), layout="backgrounds-challenge", variant="mixed-rand", split="val")
    assert len(VARIANTS) == 8


def test_missing_folder_names_both_places_looked_at(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        load_variant(tmp_path, "only_fg", "val")
    assert str(tmp_path / "only_fg" / "val") in str(error.value)
    assert str(tmp_path / "bg_challenge" / "only_fg" / "val") in str(error.value)


@pytest.mark.parametrize("classes", [("00_dog", "02_wheeled vehicle"), ("01_bird", "02_fish"), ("dog", "fish")])
def test_class_folders_out_of_step_with_their_numbers_are_refused(tmp_path: Path, classes: tuple[str, ...]) -> None:
    write_variant(tmp_path / "original" / "val", classes)
    with pytest.raises(InputError, match="is class folder number"):
        load_variant(tmp_path, "original", "val")


def test_missing_or_broken_masks_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "fg_mask" / "val"
    write_mask(folder, "00_dog/colour.JPEG", np.zeros((4, 4, 3)))
    write_mask(folder, "00_dog/words.JPEG", np.array([["a"]]))
    (folder / "00_dog" / "text.npy").write_text("not an array")
    (folder / "00_dog" / "empty.npy").touch()
    np.save(folder / "00_dog" / "pickled.npy", np.array([[object()]]), allow_pickle=True)
    problems = {
        "missing": "does not exist",
        "colour": r"has shape \(4, 4, 3\)",
        "words": "has shape .* and type <U1",
        "text": "is not a NumPy array",
        "empty": "is not a NumPy array",
        "pickled": "is not a NumPy array",
    }
    for name, problem in problems.items():
        with pytest.raises(InputError, match=rf"{name}\.npy: {problem}"):
            load_foreground_mask(tmp_path, "val", f"00_dog/{name}.JPEG")


def _only_fg(folder: Path, image_id: str, truth: NDArray[np.bool_]) -> None:
    """An object of one colour on black, as PNG under a name of JPEG: without the noise of compression."""
    (folder / image_id).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.where(truth[:, :, None], np.uint8(90), np.uint8(0)).repeat(3, axis=2)).save(
        folder / image_id, format="PNG"
    )


def test_training_pictures_have_the_foreground_that_only_fg_shows(tmp_path: Path) -> None:
    image_id, truth = "00_dog/n0_0.JPEG", np.eye(5, dtype=bool)
    _only_fg(tmp_path / "only_fg" / "train", image_id, truth)
    foregrounds = training_foregrounds(tmp_path, "train", [image_id])
    assert np.array_equal(foregrounds.mask(0), truth)
    assert foregrounds.files[0].path(0) == tmp_path / "only_fg" / "train" / image_id


def test_published_masks_come_before_only_fg(tmp_path: Path) -> None:
    image_id = "00_dog/n0_0.JPEG"
    _only_fg(tmp_path / "only_fg" / "val", image_id, np.eye(5, dtype=bool))
    write_mask(tmp_path / "fg_mask" / "val", image_id, np.ones((5, 5), dtype=bool))
    foregrounds = training_foregrounds(tmp_path, "val", [image_id])
    assert foregrounds.mask(0).all()
    assert foregrounds.files[0].path(0).suffix == ".npy"


def test_a_picture_without_its_object_is_named(tmp_path: Path) -> None:
    _only_fg(tmp_path / "only_fg" / "train", "00_dog/a.JPEG", np.eye(5, dtype=bool))
    with pytest.raises(InputError, match=r"b\.JPEG"):
        training_foregrounds(tmp_path, "train", ["00_dog/a.JPEG", "00_dog/b.JPEG"]).mask(1)
    with pytest.raises(InputError, match="only_fg"):
        training_foregrounds(tmp_path, "val", ["00_dog/a.JPEG"])


def test_a_folder_of_pictures_that_cannot_be_looked_at_is_named(tmp_path: Path) -> None:
    write_mask(tmp_path / "fg_mask" / "train", "00_dog/a.JPEG", np.ones((4, 4), dtype=np.bool_))
    (tmp_path / "original").symlink_to("x" * 300)
    with pytest.raises(InputError, match=r"original/train: cannot be looked at \(File name too long\)"):
        training_foregrounds(tmp_path, "train", ["00_dog/a.JPEG"])
