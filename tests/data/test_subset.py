"""Parts of a data set: what is drawn, and what a list that does not fit is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectaware.cli import run
from objectaware.config import DataConfig
from objectaware.data.coco import load_coco
from objectaware.data.dataset import Dataset
from objectaware.data.folder import ImageFolder
from objectaware.data.scenes import build_scenes
from objectaware.data.subset import draw_subset, restrict, write_subset
from objectaware.errors import InputError
from objectaware.stages.identity import data_hash, recipe


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("several")
    build_scenes(root, variant="multi-object", num_train=9, num_val=9, image_size=32, seed=0)
    return root


@pytest.fixture
def folder() -> ImageFolder:
    return ImageFolder("photos", ["a/1.jpg", "a/2.jpg", "b/1.jpg", "c/1.jpg"], [0, 0, 1, 2], ["a", "b", "c"])


@given(st.integers(1, 300), st.floats(0.01, 1), st.integers(0, 2**32 - 1))
def test_a_draw_has_the_size_asked_for_and_keeps_the_order(num_images: int, fraction: float, seed: int) -> None:
    image_ids = [f"{number:04}.jpg" for number in range(num_images)]
    if round(fraction * num_images) == 0:
        with pytest.raises(InputError, match="fraction"):
            draw_subset(image_ids, fraction, seed)
        return
    drawn = draw_subset(image_ids, fraction, seed)
    assert len(set(drawn)) == len(drawn) == round(fraction * num_images)
    assert drawn == sorted(set(drawn) & set(image_ids))
    assert drawn == draw_subset(image_ids, fraction, seed)


def test_a_seed_always_draws_the_same_images() -> None:
    """Lists are shared as a command with a seed: another NumPy, or another platform, must not change them."""
    image_ids = [str(number) for number in range(100)]
    assert draw_subset(image_ids, 0.1, 0) == ["5", "16", "20", "36", "52", "72", "82", "90", "93", "94"]
    assert draw_subset(image_ids, 0.1, 1) != draw_subset(image_ids, 0.1, 0)


@pytest.mark.parametrize("fraction", [0.0, -0.5, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(fraction: float) -> None:
    with pytest.raises(InputError, match=f"fraction = {fraction}"):
        draw_subset(["a", "b"], fraction, 0)


def test_every_image_is_as_likely_as_any_other() -> None:
    image_ids = [str(number) for number in range(20)]
    counts = np.zeros(20)
    for seed in range(2000):
        counts[[int(image_id) for image_id in draw_subset(image_ids, 0.25, seed)]] += 1
    # 500 of 2000 expected, standard deviation 19.4.
    assert np.all(np.abs(counts - 500) < 5 * 19.4)


def test_a_list_restricts_images_and_labels_in_the_order_of_the_data_set(folder: ImageFolder, tmp_path: Path) -> None:
    names = tmp_path / "list.txt"
    names.write_text("c/1.jpg\r\na/2.jpg\n\n")
    part = restrict(folder, str(names))
    assert part.image_ids == ["a/2.jpg", "c/1.jpg"]
    assert part.labels is not None
    assert part.labels.tolist() == [0, 2]
    assert (part.root, part.class_names) == (folder.root, folder.class_names)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    image_ids = ["ä b/1.jpg", "x\u2028y.jpg", " z.jpg"]
    write_subset(str(tmp_path / "lists" / "all.txt"), image_ids)
    assert restrict(ImageFolder("photos", image_ids), str(tmp_path / "lists" / "all.txt")).image_ids == image_ids
    with pytest.raises(InputError, match="line break"):
        write_subset(str(tmp_path / "broken.txt"), ["a\nb.jpg"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a/1.jpg\nd/1.jpg\n", "names d/1.jpg, which is not in"),
        (b"a/1.jpg\na/1.jpg\n", "names an image twice"),
        (b"\n", "names no image"),
        (b"\xff\xfe", "is not text in UTF-8"),
        (None, "does not exist"),
    ],
)
def test_a_list_that_does_not_fit_is_refused(
    content: bytes | None, message: str, folder: ImageFolder, tmp_path: Path
) -> None:
    path = tmp_path / "list.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=f"subset = {path}.*{message}"):
        restrict(folder, str(path))


def test_true_masks_of_a_part_are_those_of_its_own_images(several: Path, tmp_path: Path) -> None:
    whole = load_coco(several, "val")
    places = [7, 2, 4]
    write_subset(str(tmp_path / "list.txt"), [whole.images.image_ids[place] for place in places])
    images = DataConfig(root=str(several), layout="coco", split="val", subset=str(tmp_path / "list.txt")).open()
    masks = Dataset(DataConfig(root=str(several), layout="coco", split="val")).truth_of(images.image_ids)
    assert len(masks) == len(images) == 3
    assert masks.coco is not None
    for index, place in enumerate(sorted(places)):
        np.testing.assert_array_equal(masks[index], whole.foreground_mask(place))
        np.testing.assert_array_equal(images.read(index), whole.images.read(place))
        assert masks.coco.numbers[index] == whole.numbers[place]
        assert masks.coco.instances(index) == whole.instances(place)


def test_identity_depends_on_what_a_list_names_and_not_on_where_it_lies(several: Path, tmp_path: Path) -> None:
    whole = DataConfig(root=str(several), layout="coco", split="val")
    names = DataConfig(root=str(several), layout="coco", split="val").open().image_ids
    parts = {}
    for name, image_ids in {"one": names[:2], "same": [names[1], names[0]], "other": names[1:3]}.items():
        write_subset(str(tmp_path / name), image_ids)
        parts[name] = whole.model_copy(update={"subset": str(tmp_path / name)})
    assert recipe(parts["one"]) == recipe(parts["same"])
    assert data_hash(parts["one"]) == data_hash(parts["same"])
    assert len({data_hash(data) for data in (whole, parts["one"], parts["other"])}) == 3


def test_objects_cut_out_are_no_files_to_choose_from() -> None:
    with pytest.raises(ValueError, match="subset has no meaning for the layout coco-crop"):
        DataConfig(root="coco", layout="coco-crop", split="val", subset="list.txt")


def test_the_command_writes_a_list_that_a_recipe_takes(several: Path, tmp_path: Path) -> None:
    path = tmp_path / "third.txt"
    arguments = ["--layout", "coco", "--split", "val", "--fraction", "0.3333", "--seed", "3", "--out", str(path)]
    assert run(["data", "subset", str(several), *arguments]) == 0
    images = DataConfig(root=str(several), layout="coco", split="val", subset=str(path)).open()
    assert len(images) == 3
    assert images.image_ids == draw_subset(
        DataConfig(root=str(several), layout="coco", split="val").open().image_ids, 0.3333, 3
    )
