from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from objectaware.data.folder import ImageFolder, list_image_ids
from objectaware.data.images import UnreadableImage
from objectaware.errors import InputError

ODD_NAMES = [
    "a b.jpg",
    "new\nline.png",
    "Ünïcödé 猫.webp",
    "-leading-dash.bmp",
    "quote'\".gif",
    "percent%20.tiff",
]


def write(path: Path, colour: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (2, 2), colour).save(path)


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_lists_by_suffix_at_any_depth_sorted(tmp_path: Path) -> None:
    touch(tmp_path, "b.JPG", "a/z.jpeg", "a/deep/er/x.Png", "c.tif", "d.tiff", "e.webp", "f.bmp", "g.gif")
    touch(tmp_path, "notes.txt", "archive.jpg.zip", "jpg", "a/labels.json", "h.npy")
    ids = list_image_ids(tmp_path)
    assert ids == sorted(ids)
    assert set(ids) == {
        "b.JPG", "a/z.jpeg", "a/deep/er/x.Png", "c.tif", "d.tiff", "e.webp", "f.bmp", "g.gif",
    }  # fmt: skip


def test_hidden_files_and_folders_are_skipped(tmp_path: Path) -> None:
    touch(tmp_path, "seen.jpg", "._seen.jpg", ".hidden.png", ".cache/thumb.jpg", "a/.git/x.png", "a/._b.jpg")
    assert list_image_ids(tmp_path) == ["seen.jpg"]


def test_odd_names_are_listed_and_read(tmp_path: Path) -> None:
    for value, name in enumerate(ODD_NAMES):
        write(tmp_path / "odd folder" / name, value)
    images = ImageFolder.scan(tmp_path)
    assert sorted(images.image_ids) == sorted(f"odd folder/{name}" for name in ODD_NAMES)
    for index, image_id in enumerate(images.image_ids):
        expected = ODD_NAMES.index(image_id.removeprefix("odd folder/"))
        assert np.abs(images.read(index).astype(int) - expected).max() <= 1


def test_loops_of_links_end_and_links_to_folders_are_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    root = tmp_path / "root"
    touch(elsewhere, "there.jpg")
    touch(root, "a/here.jpg")
    (root / "a" / "up").symlink_to(root, target_is_directory=True)
    (root / "self").symlink_to(root, target_is_directory=True)
    (root / "linked").symlink_to(elsewhere, target_is_directory=True)
    (elsewhere / "back").symlink_to(root / "a", target_is_directory=True)
    assert list_image_ids(root) == ["a/here.jpg", "linked/back/here.jpg", "linked/there.jpg"]


def test_broken_link_is_listed_and_fails_when_read(tmp_path: Path) -> None:
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    images = ImageFolder.scan(tmp_path)
    assert images.image_ids == ["gone.jpg"]
    with pytest.raises(UnreadableImage):
        images.read(0)


def test_pipes_and_folders_with_an_image_suffix_are_not_images(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    touch(tmp_path, "album.jpg/inside.png")
    assert list_image_ids(tmp_path) == ["album.jpg/inside.png"]


def test_folder_without_images_is_refused(tmp_path: Path) -> None:
    touch(tmp_path, "notes.txt", ".hidden.jpg")
    with pytest.raises(InputError, match=r"holds no image.*\.jpg"):
        list_image_ids(tmp_path)


@pytest.mark.parametrize("name", ["missing", "file.jpg"])
def test_root_that_is_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    touch(tmp_path, "file.jpg")
    with pytest.raises(InputError, match=name):
        ImageFolder.scan(tmp_path / name)


def test_folder_that_cannot_be_opened_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "a.jpg", "locked/b.jpg")
    scandir = os.scandir

    def refuse(folder: Path) -> object:
        if folder.name == "locked":
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match=r"locked.*cannot be opened"):
        list_image_ids(tmp_path)


def test_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.jpg")).touch()
    with pytest.raises(InputError, match=r"caf\\udce9\.jpg.*not UTF-8"):
        list_image_ids(tmp_path)


def test_classes_are_numbered_by_the_sorted_names_of_their_folders(tmp_path: Path) -> None:
    touch(tmp_path, "02_wheeled vehicle/x.jpg", "00_dog/b.jpg", "00_dog/a/c.jpg", "01_bird/d.jpg", "stray.jpg")
    touch(tmp_path, ".cache/e.jpg")
    images = ImageFolder.from_classes(tmp_path)
    assert images.class_names == ("00_dog", "01_bird", "02_wheeled vehicle")
    assert images.image_ids == ["00_dog/a/c.jpg", "00_dog/b.jpg", "01_bird/d.jpg", "02_wheeled vehicle/x.jpg"]
    assert images.labels is not None
    assert images.labels.tolist() == [0, 0, 1, 2]
    assert images.labels.dtype == np.int64


def test_class_folder_without_images_is_refused(tmp_path: Path) -> None:
    touch(tmp_path, "a/x.jpg", "b/notes.txt")
    with pytest.raises(InputError, match=r"/b: is a class folder that holds no image"):
        ImageFolder.from_classes(tmp_path)


def test_images_without_class_folders_are_refused(tmp_path: Path) -> None:
    touch(tmp_path, "x.jpg")
    with pytest.raises(InputError, match="no class folders"):
        ImageFolder.from_classes(tmp_path)


def test_root_becomes_absolute_and_pickling_keeps_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "photos" / "a" / "x.png", 40)
    monkeypatch.chdir(tmp_path)
    images = pickle.loads(pickle.dumps(ImageFolder.from_classes("photos")))
    monkeypatch.chdir("/")
    assert images.root == tmp_path / "photos"
    assert images.path(0) == tmp_path / "photos" / "a" / "x.png"
    assert (images.read(0) == 40).all()
    assert len(images) == 1
    assert images.class_names == ("a",)


def test_images_without_labels(tmp_path: Path) -> None:
    touch(tmp_path, "x.jpg")
    images = ImageFolder.scan(tmp_path)
    assert images.labels is None
    assert images.class_names == ()
