from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pytest
import ray

from objectaware.data.folder import ImageFolder, Manifest
from objectaware.data.images import read_image, resize_image
from objectaware.distributed.localize_groups import GroupPlan, group_table, read_group
from objectaware.errors import InputError


def _plan(root: Path, *, group_size: int = 10, seed: int = 0) -> GroupPlan:
    manifest = Manifest.of(ImageFolder.scan(root))
    return GroupPlan.of(manifest, group_size=group_size, seed=seed, image_size=32)


def _read(plan: GroupPlan, group: int) -> dict[str, list[object]]:
    batch = pa.table({"group": pa.array([group], pa.int64())})
    return read_group(batch, plan=ray.put(plan)).to_pydict()


def test_groups_are_the_manifests(tiny_images: Path) -> None:
    manifest = Manifest.of(ImageFolder.scan(tiny_images))
    plan = GroupPlan.of(manifest, group_size=10, seed=3, image_size=32)
    expected = manifest.groups(10, 3)
    assert plan.num_groups == len(expected) == 5
    for group, members in enumerate(expected):
        np.testing.assert_array_equal(plan.members(group), members)


def test_only_the_short_last_group_is_filled_up(tiny_images: Path) -> None:
    plan = _plan(tiny_images)
    assert [len(plan.fillers(group)) for group in range(5)] == [0, 0, 0, 0, 6]
    np.testing.assert_array_equal(plan.fillers(4), plan.members(0)[:6])


@pytest.mark.parametrize("group_size", [44, 100, 11])
def test_nothing_is_filled_where_nothing_is_missing(tiny_images: Path, group_size: int) -> None:
    plan = _plan(tiny_images, group_size=group_size)
    assert all(len(plan.fillers(group)) == 0 for group in range(plan.num_groups))


def test_given_negatives_go_with_every_group(ray_session: None, tiny_images: Path) -> None:
    manifest = Manifest.of(ImageFolder.scan(tiny_images))
    chosen = [manifest.image_ids[7], manifest.image_ids[2], manifest.image_ids[7]]
    plan = GroupPlan.of(manifest, group_size=20, seed=0, image_size=32, negatives=chosen)
    assert [plan.fillers(group).tolist() for group in range(3)] == [[7, 2]] * 3
    row = _read(plan, 2)
    assert row["filler_ids"] == [chosen[:2]]
    assert len(row["filler"][0]) == 2 * 32 * 32 * 3
    with pytest.raises(InputError, match=r"negatives = giraffe\.jpg: is no image"):
        GroupPlan.of(manifest, group_size=20, seed=0, image_size=32, negatives=["giraffe.jpg"])


def test_a_given_negative_that_cannot_be_read_is_refused(ray_session: None, tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((4, 4, 3), dtype=np.uint8))
    (tmp_path / "b.png").write_bytes(b"")
    manifest = Manifest.of(ImageFolder.scan(tmp_path))
    plan = GroupPlan.of(manifest, group_size=2, seed=0, image_size=32, negatives=["b.png"])
    fault = pickle.loads(_read(plan, 0)["fault"][0])
    assert isinstance(fault, InputError)
    assert str(fault).startswith("negatives = b.png: the file is empty")


def _alone(folder: Path, *, num_good: int, num_bad: int, group_size: int, **options: Any) -> list[str]:
    """Why images of a folder's last group are not localized by a method that compares them, in order."""
    for number in range(num_good + num_bad):
        content = cv2.imencode(".png", np.full((8, 8, 3), number, dtype=np.uint8))[1].tobytes()
        (folder / f"{number}.png").write_bytes(content if number < num_good else b"")
    manifest = Manifest.of(ImageFolder.scan(folder))
    plan = GroupPlan.of(manifest, group_size=group_size, seed=0, image_size=32, **options)
    (row,) = group_table(plan, plan.num_groups - 1).to_pylist()
    assert len(row["pixels"]) == row["errors"].count("") * 32 * 32 * 3
    return sorted(row["errors"])


def test_an_image_that_no_other_can_be_compared_with_is_failed_and_says_so(tmp_path: Path) -> None:
    reasons = _alone(tmp_path, num_good=1, num_bad=2, group_size=64, needs_negatives=True)
    assert reasons[0].startswith("has no negatives")
    assert reasons[1:] == ["the file is empty"] * 2


def test_an_image_that_is_its_own_only_negative_is_failed_and_the_others_are_not(tmp_path: Path) -> None:
    given = {"negatives": ["0.png"], "needs_negatives": True}
    reasons = _alone(tmp_path, num_good=3, num_bad=0, group_size=64, **given)
    assert reasons[:2] == ["", ""]
    assert reasons[2].startswith("has no negatives")


@pytest.mark.parametrize(
    ("num_good", "group_size", "needs_negatives"),
    [(2, 64, True), (3, 2, True), (1, 64, False)],
    ids=["fewer than a group", "a last group of one", "a localizer that compares nothing"],
)
def test_images_that_need_no_more_are_localized(
    num_good: int, group_size: int, needs_negatives: bool, tmp_path: Path
) -> None:
    reasons = _alone(tmp_path, num_good=num_good, num_bad=0, group_size=group_size, needs_negatives=needs_negatives)
    assert set(reasons) == {""}


def test_a_group_is_read_and_squashed(ray_session: None, tiny_images: Path) -> None:
    plan = _plan(tiny_images)
    row = _read(plan, 4)
    images = ImageFolder.scan(tiny_images)
    members = plan.members(4).tolist()
    assert row["image_ids"] == [[images.image_ids[index] for index in members]]
    assert row["heights"] == [[images.read(index).shape[0] for index in members]]
    assert row["widths"] == [[48] * 4]
    assert row["errors"] == [[""] * 4]
    pixels = np.frombuffer(row["pixels"][0], dtype=np.uint8).reshape(-1, 32, 32, 3)
    filler = np.frombuffer(row["filler"][0], dtype=np.uint8).reshape(-1, 32, 32, 3)
    for position, index in enumerate(members):
        np.testing.assert_array_equal(pixels[position], resize_image(images.read(index), (32, 32)))
    for position, index in enumerate(plan.members(0)[:6].tolist()):
        np.testing.assert_array_equal(filler[position], resize_image(images.read(index), (32, 32)))


def test_an_unreadable_image_keeps_its_place_and_says_why(ray_session: None, tmp_path: Path) -> None:
    for name in "abc":
        cv2.imwrite(str(tmp_path / f"{name}.png"), np.full((8, 8, 3), ord(name), dtype=np.uint8))
    (tmp_path / "b.png").write_bytes(b"")
    plan = _plan(tmp_path)
    row = _read(plan, 0)
    names = row["image_ids"][0]
    failed = names.index("b.png")
    assert [bool(error) for error in row["errors"][0]] == [name == "b.png" for name in names]
    assert row["errors"][0][failed] == "the file is empty"
    assert (row["heights"][0][failed], row["widths"][0][failed]) == (0, 0)
    readable = [read_image(tmp_path / name)[0, 0, 0] for name in names if name != "b.png"]
    pixels = np.frombuffer(row["pixels"][0], dtype=np.uint8).reshape(-1, 32, 32, 3)
    assert pixels[:, 0, 0, 0].tolist() == readable


def test_an_error_of_the_code_travels_on_as_itself(ray_session: None, tiny_images: Path) -> None:
    batch = pa.table({"group": pa.array([0], pa.int64())})
    fault = read_group(batch, plan=ray.put("no plan"))
    assert fault.column_names == ["fault"]
    assert read_group(fault, plan=None) is fault
