from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pyarrow as pa
import pytest
import ray
import torch
from numpy.typing import NDArray

from objectaware.config import DataConfig, LocalizeConfig, LocalizeExecution
from objectaware.data.folder import ImageFolder, Manifest
from objectaware.data.images import normalise, read_image, resize_image
from objectaware.data.storage import Storage
from objectaware.distributed import localize_steps
from objectaware.distributed.localize_steps import CamActor, CrfActor, GroupPlan, group_table, read_group
from objectaware.errors import InputError
from objectaware.localize import contracam, dense_crf, expand_resolution, extract_boxes
from objectaware.localize.center_box import center_box
from objectaware.localize.classifier_cam import classifier_cam
from objectaware.localize.contracam import ContraCAM
from objectaware.localize.mask_store import ITERATIONS_NAME, MaskRow, read_rows
from objectaware.methods.checkpoint import Classifier, classifier_file, load_encoder

SIZE = 32


def _config(checkpoint: Path | str | None = "", **changes: object) -> LocalizeConfig:
    settings = {
        "data": DataConfig(root="."),
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "image_size": SIZE,
        "localizer": {"num_iterations": 2, "expansion": 4},
        "execution": LocalizeExecution(num_compute_threads=1),
    }
    return LocalizeConfig.model_validate(settings | changes)


def _group(
    pixels: NDArray[np.uint8],
    filler: NDArray[np.uint8],
    *,
    errors: list[str] | None = None,
    filler_ids: list[str] | None = None,
    number: int = 7,
) -> pa.Table:
    errors = errors or [""] * len(pixels)
    names = filler_ids or [f"filler {place}.png" for place in range(len(filler))]
    return pa.table(
        {
            "group": pa.array([number], pa.int64()),
            "image_ids": [[f"{number}.png" for number in range(len(errors))]],
            "heights": [[0 if error else 64 for error in errors]],
            "widths": [[0 if error else 48 for error in errors]],
            "errors": pa.array([errors], pa.list_(pa.string())),
            "pixels": pa.array([pixels.tobytes()], pa.large_binary()),
            "filler": pa.array([filler.tobytes()], pa.large_binary()),
            "filler_ids": pa.array([names], pa.list_(pa.string())),
        }
    )


def _pictures(count: int) -> NDArray[np.uint8]:
    pictures = np.random.default_rng(1).integers(0, 256, (count, SIZE, SIZE, 3), dtype=np.uint8)
    pictures[:, 8:20, 10:22] //= 4
    return pictures


def _cams(batch: pa.Table) -> NDArray[np.float32]:
    return np.frombuffer(batch["cams"][0].as_py(), dtype=np.float32).reshape(-1, SIZE, SIZE)


def _with_cams(cams: NDArray[np.float32], errors: list[str] | None = None) -> pa.Table:
    group = _group(_pictures(len(cams)), _pictures(0), errors=errors).drop_columns(["filler", "filler_ids"])
    group = group.append_column("iterations", pa.array([b""], pa.large_binary()))
    for name in ("waiting_seconds", "working_seconds"):
        group = group.append_column(name, pa.array([0.0]))
    return group.append_column("cams", pa.array([cams.tobytes()], pa.large_binary()))


def _stored(config: LocalizeConfig, folder: Path, batch: pa.Table) -> list[MaskRow]:
    store = Storage.from_uri(folder)
    CrfActor(config, store)(batch)
    return list(read_rows(store))


def test_soft_masks_are_the_librarys(tiny_checkpoint: Path) -> None:
    pictures = _pictures(6)
    result = CamActor(_config(tiny_checkpoint))(_group(pictures[:4], pictures[4:]))
    encoder = load_encoder(tiny_checkpoint)
    backbone = expand_resolution(encoder.backbone, 4)
    expected = contracam(normalise(pictures), backbone.forward_features, encoder.projector, num_iterations=2)
    assert "filler" not in result.column_names
    np.testing.assert_allclose(_cams(result), expected[:4, 0].numpy(), atol=1e-4)
    assert expected[:4].amax() == 1


def test_how_long_a_group_was_waited_for_and_worked_on_is_told_with_it(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One look at the clock as a group comes, one when it is done: 3 s of work, 5 s without any, 4 s of work.
    clock = iter((10.0, 13.0, 18.0, 22.0))
    monkeypatch.setattr(localize_steps, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    actor, crf = CamActor(_config(tiny_checkpoint)), CrfActor(_config(tiny_checkpoint), Storage.from_uri(tmp_path))
    groups = [actor(_group(_pictures(2), _pictures(0), number=number)) for number in range(2)]
    rows = [crf(group).to_pylist()[0] for group in groups]
    assert [(row["waiting_seconds"], row["working_seconds"]) for row in rows] == [(0, 3), (5, 4)]


def test_the_filler_takes_part_as_negatives(tiny_checkpoint: Path) -> None:
    pictures = _pictures(6)
    actor = CamActor(_config(tiny_checkpoint))
    alone, filled = actor(_group(pictures[:4], pictures[:0])), actor(_group(pictures[:4], pictures[4:]))
    assert _cams(alone).shape == _cams(filled).shape
    assert np.abs(_cams(alone) - _cams(filled)).max() > 0.01


def test_a_group_without_a_readable_image_has_no_soft_masks(tiny_checkpoint: Path) -> None:
    result = CamActor(_config(tiny_checkpoint))(_group(_pictures(0), _pictures(2), errors=["broken"]))
    assert _cams(result).shape == (0, SIZE, SIZE)


def test_a_folder_that_is_no_checkpoint_is_refused_with_the_first_group(tmp_path: Path) -> None:
    actor = CamActor(_config(tmp_path))
    with pytest.raises(InputError) as refusal:
        actor(_group(_pictures(2), _pictures(0)))
    assert refusal.value.field == "checkpoint"


def test_settings_reach_contracam(tiny_checkpoint: Path) -> None:
    group = _group(_pictures(4), _pictures(0))
    cams = [
        _cams(CamActor(_config(tiny_checkpoint, localizer={"num_iterations": 2, "expansion": 4, **changes}))(group))
        for changes in ({}, {"remove_negative_signals": False}, {"num_iterations": 1}, {"expansion": 1})
    ]
    for other in cams[1:]:
        assert np.abs(cams[0] - other).max() > 0.01
    torch.testing.assert_close(torch.tensor(cams[0].max()), torch.tensor(1.0))


@pytest.mark.parametrize("localizer", ["integrated_gradients", "smoothgrad"])
def test_saliencies_are_the_librarys_and_the_noise_is_the_groups(tiny_checkpoint: Path, localizer: str) -> None:
    config = _config(tiny_checkpoint, localizer={"name": localizer, "num_gradients": 2})
    actor, pictures = CamActor(config), _pictures(5)
    first = _cams(actor(_group(pictures[:4], pictures[4:])))
    assert first.shape == (4, SIZE, SIZE)
    assert first.max() == 1
    np.testing.assert_array_equal(_cams(actor(_group(pictures[:4], pictures[4:]))), first)
    other = _cams(actor(_group(pictures[:4], pictures[4:], number=8)))
    assert (np.abs(other - first).max() > 0.01) == (localizer == "smoothgrad")


def test_a_classifier_reaches_its_cam(tiny_checkpoint: Path, tmp_path: Path) -> None:
    weight = torch.randn(3, 384, generator=torch.Generator().manual_seed(0))
    classifier = Classifier(weight, torch.tensor([0.0, 0.0, 1e4]))
    (tmp_path / "classifier.safetensors").write_bytes(classifier_file(classifier))
    localizer = {"name": "classifier_cam", "classifier": str(tmp_path), "expansion": 4}
    pictures = _pictures(3)
    found = _cams(CamActor(_config(tiny_checkpoint, localizer=localizer))(_group(pictures, pictures[:0])))
    backbone = expand_resolution(load_encoder(tiny_checkpoint).backbone, 4)
    expected = classifier_cam(normalise(pictures), backbone.forward_features, weight, classifier.bias)
    np.testing.assert_allclose(found, expected[:, 0].numpy(), atol=1e-4)


def test_baselines_need_no_network() -> None:
    group = _group(_pictures(2), _pictures(0))
    boxes = _cams(CamActor(_config(None, localizer={"name": "center_box", "side_fraction": 0.5}))(group))
    np.testing.assert_array_equal(boxes[1], center_box(SIZE, SIZE, 0.5))
    assert (_cams(CamActor(_config(None, localizer="full_image"))(group)) == 1).all()


def test_given_negatives_are_the_only_ones_and_not_their_own(tiny_checkpoint: Path) -> None:
    pictures = _pictures(6)
    only = {"negatives": ["4.png", "1.png"], "mask_color": [124, 116, 104], "num_iterations": 2, "expansion": 4}
    actor = CamActor(_config(tiny_checkpoint, localizer=only))
    negatives, names = pictures[[4, 1]], ["4.png", "1.png"]
    both = _cams(actor(_group(pictures[:3], negatives, filler_ids=names)))
    alone = _cams(actor(_group(pictures[:1], negatives, filler_ids=names)))
    np.testing.assert_allclose(both[0], alone[0], atol=1e-4)
    strangers = _cams(actor(_group(pictures[:3], negatives, filler_ids=["8.png", "9.png"])))
    assert np.abs(both[1] - strangers[1]).max() > 1e-3
    np.testing.assert_allclose(both[0], strangers[0], atol=1e-5)


def test_iterations_of_the_first_group_are_kept_on_request(tiny_checkpoint: Path, tmp_path: Path) -> None:
    wanted = LocalizeExecution(num_compute_threads=1, record_iterations=True)
    config = _config(tiny_checkpoint, execution=wanted)
    store = Storage.from_uri(tmp_path)
    CrfActor(config, store)(CamActor(config)(_group(_pictures(3), _pictures(0))))
    assert not store.exists(ITERATIONS_NAME)
    batch = CamActor(config)(_group(_pictures(2), _pictures(0), errors=["", "broken", ""], number=0))
    CrfActor(config, store)(batch)
    with np.load(tmp_path / ITERATIONS_NAME) as kept:
        assert kept["image_ids"].tolist() == ["0.png", "2.png"]
        assert kept["cams"].shape == (2, 2, SIZE, SIZE)
        np.testing.assert_allclose(kept["cams"].max(axis=0) / 255, _cams(batch), atol=0.5 / 255 + 1e-6)


def test_masks_and_boxes_after_the_crf(tmp_path: Path) -> None:
    cam = np.zeros((1, SIZE, SIZE), dtype=np.float32)
    cam[0, 8:20, 10:22] = 0.9
    (row,) = _stored(_config(min_box_area=0.02, box_margin=0.1), tmp_path, _with_cams(cam))
    soft = dense_crf(_pictures(1)[0], cam[0])
    np.testing.assert_allclose(row.refined, soft, atol=1 / 255)
    assert (row.width, row.height, row.status) == (48, 64, "ok")
    np.testing.assert_allclose(row.cam, cam[0], atol=0.5 / 255)
    np.testing.assert_array_equal(row.boxes, extract_boxes(soft >= 0.5, min_area=0.02, margin=0.1))
    assert len(row.boxes) == 1
    # Twice as high and one and a half times as wide; edges may move by the interpolation.
    expected = np.zeros((64, 48), dtype=np.bool_)
    expected[16:40, 15:33] = True
    assert (row.mask & expected).sum() / (row.mask | expected).sum() > 0.85


def test_without_crf_the_soft_mask_is_cut_at_the_threshold(tmp_path: Path) -> None:
    cam = np.zeros((1, SIZE, SIZE), dtype=np.float32)
    cam[0, :16], cam[0, 16:24] = 0.3, 0.1
    (row,) = _stored(_config(crf=False, mask_threshold=0.2, box_margin=0.0), tmp_path, _with_cams(cam))
    assert row.mask[:31].all()
    assert not row.mask[33:].any()
    np.testing.assert_array_equal(row.boxes, [[0, 0, 1, 0.5]])


def test_an_image_where_nothing_is_found_has_an_empty_mask_and_no_boxes(tmp_path: Path) -> None:
    cam = np.zeros((1, SIZE, SIZE), dtype=np.float32)
    for crf in (True, False):
        (row,) = _stored(_config(crf=crf, mask_threshold=0.0), tmp_path, _with_cams(cam))
        assert row.status == "ok"
        assert not row.mask.any()
        assert row.boxes.shape == (0, 4)


def test_failed_images_are_rows_of_their_own(tmp_path: Path) -> None:
    cams = np.ones((2, SIZE, SIZE), dtype=np.float32) * np.array([1, 0.9], dtype=np.float32)[:, None, None]
    batch = _with_cams(cams, ["", "the file is empty", ""])
    (summary,) = CrfActor(_config(crf=False), Storage.from_uri(tmp_path))(batch).to_pylist()
    told = {name: summary[name] for name in ("group", "num_images", "failed_ids", "reasons")}
    assert told == {"group": 7, "num_images": 3, "failed_ids": ["1.png"], "reasons": ["the file is empty"]}
    rows = list(read_rows(Storage.from_uri(tmp_path)))
    assert [(row.image_id, row.status, row.error) for row in rows] == [
        ("0.png", "ok", ""),
        ("1.png", "failed", "the file is empty"),
        ("2.png", "ok", ""),
    ]
    assert rows[1].cam is None
    assert rows[2].cam[0, 0] == pytest.approx(0.9, abs=1 / 255)


def _plan(root: Path, config: LocalizeConfig) -> GroupPlan:
    return GroupPlan.of(
        Manifest.of(ImageFolder.scan(root)),
        config.localizer,
        group_size=config.group_size,
        seed=config.seed,
        image_size=config.image_size,
    )


def _read(plan: GroupPlan, group: int) -> dict[str, list[object]]:
    batch = pa.table({"group": pa.array([group], pa.int64())})
    return read_group(batch, plan=ray.put(plan)).to_pydict()


def test_groups_are_the_manifests(tiny_images: Path) -> None:
    manifest = Manifest.of(ImageFolder.scan(tiny_images))
    plan = _plan(tiny_images, _config(group_size=10, seed=3))
    expected = manifest.groups(10, 3)
    assert plan.num_groups == len(expected) == 5
    for group, members in enumerate(expected):
        np.testing.assert_array_equal(plan.members(group), members)


def test_only_the_short_last_group_is_filled_up(tiny_images: Path) -> None:
    plan = _plan(tiny_images, _config(group_size=10))
    assert [len(plan.fillers(group)) for group in range(5)] == [0, 0, 0, 0, 6]
    np.testing.assert_array_equal(plan.fillers(4), plan.members(0)[:6])


@pytest.mark.parametrize("group_size", [44, 100, 11])
def test_nothing_is_filled_where_nothing_is_missing(tiny_images: Path, group_size: int) -> None:
    plan = _plan(tiny_images, _config(group_size=group_size))
    assert all(len(plan.fillers(group)) == 0 for group in range(plan.num_groups))


def test_given_negatives_go_with_every_group(ray_session: None, tiny_images: Path) -> None:
    manifest = Manifest.of(ImageFolder.scan(tiny_images))
    chosen = [manifest.image_ids[7], manifest.image_ids[2], manifest.image_ids[7]]
    plan = _plan(tiny_images, _config(group_size=20, localizer=ContraCAM(negatives=tuple(chosen))))
    assert [plan.fillers(group).tolist() for group in range(3)] == [[7, 2]] * 3
    row = _read(plan, 2)
    assert row["filler_ids"] == [chosen[:2]]
    assert len(row["filler"][0]) == 2 * 32 * 32 * 3
    with pytest.raises(InputError, match=r"negatives = giraffe\.jpg: is not an image"):
        _plan(tiny_images, _config(group_size=20, localizer=ContraCAM(negatives=("giraffe.jpg",))))


def test_a_given_negative_that_cannot_be_read_is_refused(ray_session: None, tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((4, 4, 3), dtype=np.uint8))
    (tmp_path / "b.png").write_bytes(b"")
    plan = _plan(tmp_path, _config(group_size=2, localizer=ContraCAM(negatives=("b.png",))))
    with pytest.raises(InputError, match=r"^negatives = b\.png: the file is empty"):
        _read(plan, 0)


def _alone(folder: Path, config: LocalizeConfig, *, num_good: int, num_bad: int = 0) -> list[str]:
    """Why images of a folder's last group are not localized by a method that compares them, in order."""
    for number in range(num_good + num_bad):
        content = cv2.imencode(".png", np.full((8, 8, 3), number, dtype=np.uint8))[1].tobytes()
        (folder / f"{number}.png").write_bytes(content if number < num_good else b"")
    plan = _plan(folder, config)
    (row,) = group_table(plan, plan.num_groups - 1).to_pylist()
    assert len(row["pixels"]) == row["errors"].count("") * 32 * 32 * 3
    return sorted(row["errors"])


def test_an_image_that_no_other_can_be_compared_with_is_failed_and_says_so(tmp_path: Path) -> None:
    reasons = _alone(tmp_path, _config(), num_good=1, num_bad=2)
    assert reasons[0].startswith("has no negatives")
    assert reasons[1:] == ["the file is empty"] * 2


def test_an_image_that_is_its_own_only_negative_is_failed_and_the_others_are_not(tmp_path: Path) -> None:
    reasons = _alone(tmp_path, _config(localizer=ContraCAM(negatives=("0.png",))), num_good=3)
    assert reasons[:2] == ["", ""]
    assert reasons[2].startswith("has no negatives")


@pytest.mark.parametrize(
    ("num_good", "config"),
    [(2, _config()), (3, _config(group_size=2)), (1, _config(None, localizer="full_image"))],
    ids=["fewer than a group", "a last group of one", "a localizer that compares nothing"],
)
def test_images_that_need_no_more_are_localized(num_good: int, config: LocalizeConfig, tmp_path: Path) -> None:
    assert set(_alone(tmp_path, config, num_good=num_good)) == {""}


def test_a_group_is_read_and_squashed(ray_session: None, tiny_images: Path) -> None:
    plan = _plan(tiny_images, _config(group_size=10))
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
    plan = _plan(tmp_path, _config(group_size=10))
    row = _read(plan, 0)
    names = row["image_ids"][0]
    failed = names.index("b.png")
    assert [bool(error) for error in row["errors"][0]] == [name == "b.png" for name in names]
    assert row["errors"][0][failed] == "the file is empty"
    assert (row["heights"][0][failed], row["widths"][0][failed]) == (0, 0)
    readable = [read_image(tmp_path / name)[0, 0, 0] for name in names if name != "b.png"]
    pixels = np.frombuffer(row["pixels"][0], dtype=np.uint8).reshape(-1, 32, 32, 3)
    assert pixels[:, 0, 0, 0].tolist() == readable


def test_an_untrained_network_finds_what_its_seed_gives(tiny_checkpoint: Path) -> None:
    group = _group(_pictures(4), _pictures(0))
    maps = [
        _cams(CamActor(_config(tiny_checkpoint, untrained=untrained, seed=seed))(group))
        for untrained, seed in ((False, 1), (True, 1), (True, 1), (True, 2))
    ]
    np.testing.assert_array_equal(maps[1], maps[2])
    for other in (maps[0], maps[3]):
        assert np.abs(maps[1] - other).max() > 0.1
