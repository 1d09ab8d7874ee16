from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectaware.data.folder import ImageFolder
from objectaware.data.manifest import Manifest


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
