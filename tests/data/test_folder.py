from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from objectaware.cli import run
from objectaware.data.folder import ImageFolder, list_image_ids
from objectaware.data.images import UnreadableImage
from objectaware.data.manifest import Manifest
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


def refuse_to_list(monkeypatch: pytest.MonkeyPatch, name: str, error: int) -> None:
    """Has the system refuse to list the folders of a name: permissions do not hold for root."""
    scandir = os.scandir

    def refuse(folder: str | Path) -> object:
        if Path(folder).name == name:
            raise OSError(error, os.strerror(error))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)


def write_bad_links(folder: Path) -> set[str]:
    """Writes links that no system follows; gives their names."""
    (folder / "me").symlink_to("me")
    (folder / "there").symlink_to("back")
    (folder / "back").symlink_to("there")
    (folder / "long").symlink_to("x" * 300)
    (folder / "gone").symlink_to("nowhere")
    return {"me", "there", "back", "long", "gone"}


def test_links_that_lead_nowhere_are_entries_with_a_reason(tmp_path: Path) -> None:
    touch(tmp_path, "seen.jpg")
    bad = write_bad_links(tmp_path)
    images = ImageFolder.scan(tmp_path)
    assert set(images.image_ids) == bad | {"seen.jpg"}
    reasons = {}
    for index, image_id in enumerate(images.image_ids):
        with pytest.raises(UnreadableImage) as error:
            images.read(index)
        reasons[image_id] = error.value.reason
    assert "Too many levels of symbolic links" in reasons["me"]
    assert reasons["there"] == reasons["back"] == reasons["me"]
    assert "File name too long" in reasons["long"]
    assert "No such file" in reasons["gone"]
    sizes = dict(zip(images.image_ids, Manifest.of(images).sizes, strict=True))
    assert {sizes[name] for name in bad} == {-1}
    assert sizes["seen.jpg"] == 0


def test_the_commands_go_on_beside_links_that_lead_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "photos" / "seen.jpg")
    touch(tmp_path, "photos/other.heic")
    bad = write_bad_links(tmp_path / "photos")
    assert run(["data", "list", str(tmp_path / "photos")]) == 0
    listed = capsys.readouterr().out.splitlines()[0]
    assert listed.split(maxsplit=1) == ["folder", "6 images; 1 file is left out: 1 .heic"]
    assert run(["data", "pack", str(tmp_path / "photos"), "--out", str(tmp_path / "pack")]) == 0
    captured = capsys.readouterr()
    assert f"num_unreadable: {len(bad)}" in captured.out
    assert "1 file is left out: 1 .heic" in captured.err


@pytest.mark.parametrize("error", [errno.EACCES, errno.ENOENT, errno.EIO, errno.ESTALE])
def test_a_folder_that_cannot_be_listed_is_an_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    touch(tmp_path, "a.jpg", "deep/locked/b.jpg", "deep/c.jpg")
    refuse_to_list(monkeypatch, "locked", error)
    images = ImageFolder.scan(tmp_path)
    assert images.image_ids == ["a.jpg", "deep/c.jpg", "deep/locked"]
    with pytest.raises(UnreadableImage, match="cannot be opened"):
        images.read(2)


def test_a_root_that_cannot_be_listed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "photos/a.jpg")
    refuse_to_list(monkeypatch, "photos", errno.EACCES)
    with pytest.raises(InputError, match=r"photos: cannot be listed \(Permission denied\)"):
        ImageFolder.scan(tmp_path / "photos")


@pytest.mark.parametrize("name", ["loop", "n" * 300, "file.jpg/below", "nul\0"])
def test_a_root_that_cannot_be_looked_at_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    touch(tmp_path, "file.jpg")
    with pytest.raises(InputError, match=r"cannot be looked at|is not an existing folder"):
        ImageFolder.scan(tmp_path / name)


def test_a_class_folder_that_cannot_be_listed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "cat/a.jpg", "dog/b.jpg", "dog/deep/c.jpg")
    (tmp_path / "me").symlink_to("me")
    write_bad_links(tmp_path / "dog")
    images = ImageFolder.from_classes(tmp_path)
    assert images.class_names == ("cat", "dog")
    assert images.labels is not None
    assert images.labels[images.image_ids.index("dog/me")] == 1
    assert "1 without suffix outside the class folders" in images.notice
    refuse_to_list(monkeypatch, "cat", errno.EACCES)
    with pytest.raises(InputError, match=r"cat: cannot be listed"):
        ImageFolder.from_classes(tmp_path)


@pytest.mark.chaos(fault="links and folders that the system refuses, as a user without rights", holds="a row for each")
def test_what_a_user_may_not_enter_is_an_entry(tmp_path: Path) -> None:
    """In a process that gives its rights up, where it has any: the link leads through a folder without rights."""
    touch(tmp_path, "photos/a.jpg", "photos/inside/b.jpg", "locked/deep/c.jpg")
    (tmp_path / "photos" / "link").symlink_to("../locked/deep")
    tmp_path.chmod(0o755)
    for folder in (tmp_path / "locked", tmp_path / "photos" / "inside"):
        folder.chmod(0)
    program = f"""
import os
from objectaware.data.folder import list_image_ids
os.chdir({str(tmp_path)!r})
if os.getuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
print(list_image_ids("photos"))
"""
    try:
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    finally:
        for folder in (tmp_path / "locked", tmp_path / "photos" / "inside"):
            folder.chmod(0o700)
    assert (result.returncode, result.stdout) == (0, "['a.jpg', 'inside', 'link']\n"), result.stderr


def test_files_that_are_no_images_are_counted_by_kind(tmp_path: Path) -> None:
    touch(tmp_path, "a.jpg", "b.HEIC", "deep/c.heic", "README", ".hidden", "deep/d.txt")
    os.mkfifo(tmp_path / "pipe.jpg")
    images = ImageFolder.scan(tmp_path)
    start, _, kinds = images.notice.partition(": ")
    assert start == "5 files are left out"
    assert sorted(kinds.split(", ")) == ["1 .jpg", "1 .txt", "1 without suffix", "2 .heic"]
    assert images.select(np.array([0])).notice == images.notice
    (tmp_path / "a.jpg").unlink()
    with pytest.raises(InputError, match=r"holds no image but 2 \.heic"):
        ImageFolder.scan(tmp_path)


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
