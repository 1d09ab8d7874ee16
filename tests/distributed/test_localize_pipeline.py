from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ray.data.exceptions import ExecutionTimeoutError

from actors import actors
from objectaware.config import DataConfig, LocalizeConfig, LocalizeExecution
from objectaware.data.folder import ImageFolder, Manifest
from objectaware.data.storage import Storage
from objectaware.distributed import localize as localize_module
from objectaware.distributed.localize import LocalizeSummary, localize, localize_needs
from objectaware.distributed.task import NoProgressError
from objectaware.errors import InputError
from objectaware.localize.contracam import ContraCAM
from objectaware.localize.mask_store import MaskRow, read_rows, write_shard

pytestmark = pytest.mark.timeout(600)
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def images(tiny_images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """45 files, of which one is no picture: five groups of 8 and one of 5, which 3 others fill up."""
    folder = tmp_path_factory.mktemp("photos") / "photos"
    shutil.copytree(tiny_images, folder)
    (folder / "broken.jpg").write_bytes(b"not a picture")
    return folder


def _localize(
    images: Path,
    checkpoint: Path,
    store: Path,
    *,
    on_record: Callable[[dict[str, Any]], None] = lambda record: None,
    **execution: int,
) -> LocalizeSummary:
    config = LocalizeConfig(
        data=DataConfig(root=str(images)),
        checkpoint=str(checkpoint),
        image_size=32,
        localizer=ContraCAM(num_iterations=1, expansion=4),
        group_size=8,
        seed=1,
        execution=LocalizeExecution(**{"num_compute_threads": 1, "num_crf_actors": 1, **execution}),
    )
    manifest = Manifest.of(ImageFolder.scan(images))
    return localize(config, manifest=manifest, store=Storage.from_uri(store), on_record=on_record)


@pytest.fixture(scope="module")
def finished(
    ray_session: None, images: Path, tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, LocalizeSummary, list[dict[str, Any]]]:
    """A mask store, its summary and the records that came meanwhile."""
    store, records = tmp_path_factory.mktemp("masks"), list[dict[str, Any]]()
    return store, _localize(images, tiny_checkpoint, store, on_record=records.append), records


def _content(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(store.iterdir())}


@slow
def test_every_image_has_one_row(finished: tuple[Path, LocalizeSummary, list[dict[str, Any]]], images: Path) -> None:
    store, summary, _ = finished
    rows = list(read_rows(Storage.from_uri(store)))
    assert sorted(row.image_id for row in rows) == sorted(path.name for path in images.iterdir())
    assert sorted(_content(store)) == [f"shard-{group:06d}.parquet" for group in range(6)]
    by_id = {row.image_id: row for row in rows}
    assert by_id["broken.jpg"].status == "failed"
    assert sum(row.status == "ok" for row in rows) == 44
    shapes = {row.mask.shape for row in rows if row.mask is not None}
    assert shapes == {(height, 48) for height in range(40, 45)}
    assert sum(bool(row.cam.any()) for row in rows if row.cam is not None) > 22
    assert (summary.num_images, summary.num_ok, summary.num_failed) == (45, 44, 1)
    assert summary.failures == [("broken.jpg", by_id["broken.jpg"].error)]


@slow
def test_progress_comes_group_by_group(
    finished: tuple[Path, LocalizeSummary, list[dict[str, Any]]],
) -> None:
    _, _, records = finished
    assert len(records) == 6
    assert all(record["kind"] == "progress" and record["total"] == 45 for record in records)
    done = [record["done"] for record in records]
    assert done == sorted(done)
    assert done[-1] == 45
    assert sorted({later - earlier for earlier, later in zip([0, *done], done, strict=False)}) == [5, 8]


@slow
def test_a_finished_store_is_not_computed_again(
    finished: tuple[Path, LocalizeSummary, list[dict[str, Any]]], images: Path, tiny_checkpoint: Path
) -> None:
    store, summary, _ = finished
    records: list[dict[str, Any]] = []
    times = {path: path.stat().st_mtime_ns for path in store.iterdir()}
    assert _localize(images, tiny_checkpoint, store, on_record=records.append) == summary
    assert records == []
    assert {path: path.stat().st_mtime_ns for path in store.iterdir()} == times


@slow
def test_a_missing_shard_alone_is_computed_again_and_to_the_byte(
    finished: tuple[Path, LocalizeSummary, list[dict[str, Any]]],
    images: Path,
    tiny_checkpoint: Path,
    tmp_path: Path,
) -> None:
    store, summary, _ = finished
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    (copy / "shard-000005.parquet").unlink()  # the short one, whose filler comes from another group
    records: list[dict[str, Any]] = []
    again = _localize(images, tiny_checkpoint, copy, on_record=records.append)
    assert [record["done"] for record in records] == [45]
    assert _content(copy) == _content(store)
    assert (again.num_ok, again.num_failed, again.failures) == (44, 1, summary.failures)


def _kill(class_name: str) -> None:
    """Kills the process of an actor, as soon as there is one."""
    filters = [("state", "=", "ALIVE")]
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for actor in actors(*filters, detail=True):
            if class_name in actor.class_name:
                os.kill(actor.pid, signal.SIGKILL)
                return
    raise AssertionError(f"no living actor {class_name}")


@slow
@pytest.mark.chaos(fault="localization actors killed", holds="no row lost or changed")
def test_lost_actors_lose_nothing_and_their_number_changes_nothing(
    finished: tuple[Path, LocalizeSummary, list[dict[str, Any]]],
    images: Path,
    tiny_checkpoint: Path,
    tmp_path: Path,
) -> None:
    killed: list[str] = []

    def kill_crf(record: dict[str, Any]) -> None:
        if not killed:
            _kill("CrfActor")
            killed.append("CrfActor")

    with ThreadPoolExecutor(1) as pool:
        # ContraCAM is through with these few images before the first of them is recorded.
        cam_killed = pool.submit(_kill, "CamActor")
        summary = _localize(
            images,
            tiny_checkpoint,
            tmp_path / "masks",
            on_record=kill_crf,
            num_cam_actors=2,
            num_crf_actors=2,
        )
        cam_killed.result()
    assert killed
    assert summary == finished[1]
    assert _content(tmp_path / "masks") == _content(finished[0])


@slow
def test_a_bad_checkpoint_is_refused_as_such(ray_session: None, images: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"checkpoint = .*holds no state.pt"):
        _localize(images, tmp_path / "empty", tmp_path / "masks")


@pytest.mark.chaos(fault="a corrupt shard of masks", holds="its name in a message")
def test_a_damaged_shard_is_told(ray_session: None, images: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "shard-000002.parquet").write_bytes(b"PAR1 half a shard")
    with pytest.raises(InputError, match=r"shard-000002.parquet: cannot be read"):
        _localize(images, tiny_checkpoint, tmp_path)


def test_a_cluster_that_is_too_small_is_refused(
    ray_session: None, images: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"1 readers × 1 \+ 1 num_cam_actors × 100000 \+ 1 num_crf_actors × 1"):
        _localize(images, tiny_checkpoint, tmp_path, num_compute_threads=100_000)


class _Pipelines:
    """Pipelines in place of Ray Data's: each gives some groups, and then makes no progress."""

    def __init__(self, *num_done: int) -> None:
        self._num_done = list(num_done)
        self.asked: list[list[int]] = []

    def __call__(self, config: Any, plan: Any, pending: list[int], store: Storage, *, all_fit: bool) -> _Pipelines:
        self.asked.append(pending)
        return self

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        pending = self.asked[-1]
        for group in pending[: self._num_done.pop(0)]:
            nothing = {"failed_ids": [], "reasons": [], "waiting_seconds": 0.0, "working_seconds": 0.0}
            yield {"group": group, "num_images": 5 if group == 5 else 8, **nothing}
        if self._num_done:
            raise ExecutionTimeoutError("no progress")


def _localize_by(
    pipelines: _Pipelines, waits: list[bool], images: Path, checkpoint: Path, store: Path, patch: pytest.MonkeyPatch
) -> LocalizeSummary:
    patch.setattr(localize_module, "_pipeline", pipelines)
    patch.setattr(localize_module, "wait_for_room", lambda *_, **__: waits.pop(0))
    return _localize(images, checkpoint, store)


def test_no_progress_counts_from_the_first_group_and_not_while_there_is_no_room(
    ray_session: None, images: Path, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Twice no group begins; after two groups the room is gone, and waited for.
    pipelines, waits = _Pipelines(0, 0, 2, 4), [True, False, False, True]
    summary = _localize_by(pipelines, waits, images, tiny_checkpoint, tmp_path, monkeypatch)
    assert summary.num_ok == 45
    assert pipelines.asked == [[0, 1, 2, 3, 4, 5]] * 3 + [[2, 3, 4, 5]]


def test_no_progress_with_room_ends_a_localization(
    ray_session: None, images: Path, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoProgressError, match="no group was done within 1800 s, although there is room"):
        _localize_by(_Pipelines(2, 4), [False, False], images, tiny_checkpoint, tmp_path, monkeypatch)


def test_processes_that_do_no_group_are_not_started_for_ever(
    ray_session: None, images: Path, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Starts without room do not count.
    pipelines, waits = _Pipelines(*[0] * 9), [False, False, False, True, False, False, False, False, False]
    with pytest.raises(NoProgressError, match="no group was done within 1800 s, 4 times in a row, although there is"):
        _localize_by(pipelines, waits, images, tiny_checkpoint, tmp_path, monkeypatch)
    assert len(pipelines.asked) == 7


def test_the_least_is_one_process_of_each_kind() -> None:
    execution = LocalizeExecution(num_cam_actors=4, num_crf_actors=8, num_compute_threads=2)
    assert [(need.count, need.num_cpus) for need in localize_needs(execution, least=True)] == [(1, 1), (1, 2), (1, 1)]


def test_the_defaults_fit_the_local_ray() -> None:
    assert sum(need.count * need.num_cpus for need in localize_needs(LocalizeExecution())) <= 8


def test_a_gpu_takes_the_place_of_the_compute_threads() -> None:
    needs = {need.name: need for need in localize_needs(LocalizeExecution(use_gpu=True, num_cam_actors=2))}
    assert (needs["num_cam_actors"].num_gpus, needs["num_cam_actors"].num_cpus) == (1, 0)
    assert needs["readers"].count == 16


def test_the_list_of_failures_ends_at_a_hundred() -> None:
    summary = LocalizeSummary(num_images=400)
    for group in range(5):
        summary.add(80, [(f"{group}/{number}.jpg", "the file is empty") for number in range(60)])
    assert (summary.num_ok, summary.num_failed, len(summary.failures)) == (100, 300, 100)
    assert summary.failures[60] == ("1/0.jpg", "the file is empty")


def test_a_data_set_of_which_nothing_can_be_read_is_refused_and_nothing_kept(tmp_path: Path) -> None:
    """All groups are there, so that Ray has nothing to do."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for name in ("a.jpg", "b.jpg"):
        (photos / name).write_bytes(b"")
    store = Storage.from_uri(tmp_path / "store")
    rows = [MaskRow(name, 0, 0, status="failed", error="the file is empty") for name in ("a.jpg", "b.jpg")]
    write_shard(store, 0, rows)
    with pytest.raises(InputError, match=r"2 images: hold none that can be read, such as a\.jpg \(the file is empty\)"):
        _localize(photos, tmp_path / "checkpoint", tmp_path / "store")
    assert store.list_names() == []
