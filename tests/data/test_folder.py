from __future__ import annotations

import errno
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from objectaware.cli import run
from objectaware.config import DataConfig
from objectaware.data.dataset import Dataset
from objectaware.data.folder import ImageFolder, Manifest, draw_subset, restrict, write_subset
from objectaware.data.images import UnreadableImage
from objectaware.data.scenes import build_scenes
from objectaware.data.sets.coco import load_coco
from objectaware.errors import InputError
from objectaware.stages.identity import data_hash, recipe

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
    ids = ImageFolder.scan(tmp_path).image_ids
    assert ids == sorted(ids)
    assert set(ids) == {
        "b.JPG", "a/z.jpeg", "a/deep/er/x.Png", "c.tif", "d.tiff", "e.webp", "f.bmp", "g.gif",
    }  # fmt: skip


def test_hidden_files_and_folders_are_skipped(tmp_path: Path) -> None:
    touch(tmp_path, "seen.jpg", "._seen.jpg", ".hidden.png", ".cache/thumb.jpg", "a/.git/x.png", "a/._b.jpg")
    assert ImageFolder.scan(tmp_path).image_ids == ["seen.jpg"]


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
    assert ImageFolder.scan(root).image_ids == ["a/here.jpg", "linked/back/here.jpg", "linked/there.jpg"]


def test_broken_link_is_listed_and_fails_when_read(tmp_path: Path) -> None:
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    images = ImageFolder.scan(tmp_path)
    assert images.image_ids == ["gone.jpg"]
    with pytest.raises(UnreadableImage):
        images.read(0)


def test_pipes_and_folders_with_an_image_suffix_are_not_images(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    touch(tmp_path, "album.jpg/inside.png")
    assert ImageFolder.scan(tmp_path).image_ids == ["album.jpg/inside.png"]


def test_folder_without_images_is_refused(tmp_path: Path) -> None:
    touch(tmp_path, "notes.txt", ".hidden.jpg")
    with pytest.raises(InputError, match=r"holds no image.*\.jpg"):
        ImageFolder.scan(tmp_path)


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
from objectaware.data.folder import ImageFolder
os.chdir({str(tmp_path)!r})
if os.getuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
print(ImageFolder.scan("photos").image_ids)
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
    assert images.select([0]).notice == images.notice
    (tmp_path / "a.jpg").unlink()
    with pytest.raises(InputError, match=r"holds no image but 2 \.heic"):
        ImageFolder.scan(tmp_path)


def test_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.jpg")).touch()
    with pytest.raises(InputError, match=r"caf\\udce9\.jpg.*not UTF-8"):
        ImageFolder.scan(tmp_path)


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


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    for name in ("a.jpg", "b/c.jpg", "b/d.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode() * 3)
        os.utime(folder / name, ns=(5, 1_000_000_007))
    return folder


def manifest_of(num_images: int) -> Manifest:
    ids = tuple(f"{index}.jpg" for index in range(num_images))
    return Manifest("/photos", ids, (1,) * num_images, (1,) * num_images)


def hashes(folder: Path) -> tuple[str, str]:
    manifest = Manifest.of(ImageFolder.scan(folder))
    return manifest.content_hash(), manifest.content_hash(verify=True)


def test_manifest_records_names_sizes_and_times(photos: Path) -> None:
    manifest = Manifest.of(ImageFolder.scan(photos))
    assert manifest.root == str(photos)
    assert manifest.image_ids == ("a.jpg", "b/c.jpg", "b/d.jpg")
    assert manifest.sizes == (15, 21, 21)
    assert manifest.modified_ns == (1_000_000_007,) * 3
    assert len(manifest) == 3


def test_hash_does_not_depend_on_where_the_folder_lies(photos: Path, tmp_path: Path) -> None:
    before = hashes(photos)
    shutil.move(photos, tmp_path / "moved")
    assert hashes(tmp_path / "moved") == before
    assert all(len(value) == 64 and int(value, 16) >= 0 for value in before)


def test_touching_changes_the_quick_hash_alone(photos: Path) -> None:
    quick, verified = hashes(photos)
    os.utime(photos / "a.jpg", ns=(5, 1_000_000_008))
    assert hashes(photos)[0] != quick
    assert hashes(photos)[1] == verified


def test_change_that_keeps_size_and_time_changes_the_verified_hash_alone(photos: Path) -> None:
    quick, verified = hashes(photos)
    (photos / "a.jpg").write_bytes(b"!" * 15)
    os.utime(photos / "a.jpg", ns=(5, 1_000_000_007))
    assert hashes(photos)[0] == quick
    assert hashes(photos)[1] != verified


def test_renaming_growing_adding_and_reordering_change_both_hashes(photos: Path) -> None:
    seen = [hashes(photos)]
    (photos / "b/d.jpg").rename(photos / "b/e.jpg")
    seen.append(hashes(photos))
    (photos / "b/e.jpg").write_bytes(b"longer than it was before")
    os.utime(photos / "b/e.jpg", ns=(5, 1_000_000_007))
    seen.append(hashes(photos))
    shutil.copy2(photos / "a.jpg", photos / "f.jpg")
    seen.append(hashes(photos))
    backwards = Manifest.of(ImageFolder(photos, ["f.jpg", "b/e.jpg", "b/c.jpg", "a.jpg"]))
    seen.append((backwards.content_hash(), backwards.content_hash(verify=True)))
    assert len({value for pair in seen for value in pair}) == 2 * len(seen)


def test_fields_cannot_run_into_each_other() -> None:
    first = Manifest("/p", ("a", "b"), (1, 2), (3, 4))
    others = [
        Manifest("/p", ("a", "b"), (13, 2), (3, 4)),
        Manifest("/p", ("a1", "b"), (3, 2), (3, 4)),
        Manifest("/p", ("a\n1\n3\nb",), (2,), (4,)),
        Manifest("/p", ("a",), (1,), (3,)),
    ]
    assert len({manifest.content_hash() for manifest in [first, *others]}) == 5


def test_missing_file_is_part_of_the_manifest(photos: Path) -> None:
    (photos / "gone.jpg").symlink_to(photos / "nowhere")
    manifest = Manifest.of(ImageFolder.scan(photos))
    index = manifest.image_ids.index("gone.jpg")
    assert (manifest.sizes[index], manifest.modified_ns[index]) == (-1, -1)
    before = manifest.content_hash(), manifest.content_hash(verify=True)
    (photos / "nowhere").write_bytes(b"found")
    after = hashes(photos)
    assert before[0] != after[0]
    assert before[1] != after[1]


@settings(deadline=None)
@given(num_images=st.integers(0, 300), group_size=st.integers(1, 70), seed=st.integers(0, 2**32))
def test_groups_hold_every_image_exactly_once(num_images: int, group_size: int, seed: int) -> None:
    groups = manifest_of(num_images).groups(group_size, seed)
    members = [int(index) for group in groups for index in group]
    assert sorted(members) == list(range(num_images))
    assert all(len(group) == group_size for group in groups[:-1])
    assert all(1 <= len(group) <= group_size for group in groups)
    assert all(group.dtype == np.int64 for group in groups)


@settings(deadline=None)
@given(num_images=st.integers(0, 300), group_size=st.integers(1, 70), seed=st.integers(0, 2**32))
def test_filler_completes_the_last_group_from_the_first(num_images: int, group_size: int, seed: int) -> None:
    manifest = manifest_of(num_images)
    groups, filler = manifest.groups(group_size, seed), manifest.negatives_filler(group_size, seed)
    assert filler.dtype == np.int64
    if len(groups) < 2:
        assert len(filler) == 0
        return
    assert len(groups[-1]) + len(filler) == group_size
    assert filler.tolist() == groups[0].tolist()[: len(filler)]
    assert not set(filler.tolist()) & set(groups[-1].tolist())


def test_groups_are_the_same_in_every_process_and_differ_between_seeds() -> None:
    first, last = manifest_of(10).groups(4, seed=0)[::2]
    # numpy.random.Generator(PCG64(0)).permutation(10)
    assert (first.tolist(), last.tolist()) == ([4, 6, 2, 7], [8, 1])
    assert manifest_of(10).groups(4, seed=1)[0].tolist() != first.tolist()


def test_groups_mix_neighbours_of_the_file_order() -> None:
    groups = manifest_of(1000).groups(64, seed=0)
    assert all(np.ptp(group) > 500 for group in groups)


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
    masks = Dataset.of(DataConfig(root=str(several), layout="coco", split="val")).truth_of(images.image_ids)
    assert len(masks) == len(images) == 3
    assert masks.coco is not None
    for index, place in enumerate(sorted(places)):
        np.testing.assert_array_equal(masks[index], whole.foreground_mask(place))
        np.testing.assert_array_equal(images.read(index), whole.images.read(place))
        assert masks.coco.numbers[index] == whole.numbers[place]
        boxes = [coco.annotated_boxes(at, min_area=0) for coco, at in ((masks.coco, index), (whole, place))]
        np.testing.assert_array_equal(*boxes)


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
