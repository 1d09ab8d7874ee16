"""All stages' work done in this process, one piece after the other, in place of Ray's."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from objectaware.config import DetectionConfig, LocalizeConfig
from objectaware.data.folder import Manifest
from objectaware.data.storage import Storage
from objectaware.distributed import localize_steps, task
from objectaware.distributed.localize import LocalizeSummary
from objectaware.distributed.localize_steps import CamActor, CrfActor, GroupPlan, read_group
from objectaware.stages import detection, localize, pretrain, runner
from objectaware.training.loop import KEPT_FOLDER, checkpoint_name
from objectaware.training.session import LocalSession

Record = Mapping[str, Any]


def work_in_process(patch: pytest.MonkeyPatch) -> None:
    """Lets stages pretrain, localize and evaluate without Ray; what they compute is the same."""
    patch.setattr(pretrain, "train_on_ray", _train)
    patch.setattr(localize, "localize_images", _localize)
    patch.setattr(detection, "train_on_ray", _train)
    patch.setattr(localize_steps, "ray", _InlineRay())
    patch.setattr(task, "ray", _InlineRay())
    patch.setattr(task, "wait_for_room", lambda *_, **__: None)
    patch.setattr(runner, "require_possible", lambda *_: None)


class _InlineRay:
    """The few of Ray's functions that tasks take: a task is done when it is asked for, and is its own reference."""

    def remote(self, function: Callable[..., Any]) -> _InlineTask:
        return _InlineTask(function)

    def get(self, references: Any) -> Any:
        return references

    def wait(self, references: Sequence[Any], *, timeout: float | None) -> tuple[list[Any], list[Any]]:
        return list(references[:1]), list(references[1:])

    def cancel(self, reference: Any, *, force: bool) -> None:
        pass


class _InlineTask:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.remote = function

    def options(self, **_: object) -> _InlineTask:
        return self


class _Session(LocalSession):
    """A session of one process that hands the records of epochs and steps on."""

    def __init__(self, folder: Path, kept_folder: Storage, config: Any, on_record: Callable[[Record], None]) -> None:
        super().__init__(folder)
        self.kept_folder = kept_folder
        self._extra = {"iteration": config.num_iterations} if isinstance(config, DetectionConfig) else {}
        self._on_record = on_record

    def report(self, metrics: Mapping[str, float], *, epoch: int, checkpoint: Path | None) -> None:
        super().report(metrics, epoch=epoch, checkpoint=checkpoint)
        self._on_record({"kind": "epoch", "epoch": epoch, **metrics, **self._extra})

    def record(self, metrics: Mapping[str, float], *, step: int) -> None:
        super().record(metrics, step=step)
        self._on_record({"kind": "steps", "step": step, **metrics})


def _train(
    loop: Callable[[Any, LocalSession], None],
    config: Any,
    *,
    storage: Storage,
    on_record: Callable[[Record], None],
) -> str:
    folder = storage.child("train")
    working = Path(tempfile.mkdtemp(prefix="oa-train"))
    session = _Session(working, folder.child(KEPT_FOLDER), config, on_record)
    loop(config, session)
    return _kept(session, working, folder, config.num_epochs)


def _kept(session: LocalSession, working: Path, folder: Storage, num_epochs: int) -> str:
    """Moves the last checkpoint to where it is looked for."""
    restored = session.restored()
    assert restored is not None
    last = folder.child(checkpoint_name(num_epochs - 1))
    for file in restored.iterdir():
        last.write_bytes(file.name, file.read_bytes())
    shutil.rmtree(working)
    return last.uri


def _localize(
    config: LocalizeConfig, *, manifest: Manifest, store: Storage, on_record: Callable[[Record], None]
) -> LocalizeSummary:
    plan = GroupPlan.of(
        manifest, config.localizer, group_size=config.group_size, seed=config.seed, image_size=config.image_size
    )
    cam, crf = CamActor(config), CrfActor(config, store)
    summary = LocalizeSummary(num_images=len(manifest))
    for group in range(plan.num_groups):
        batch = pa.table({"group": pa.array([group], pa.int64())})
        for step in (lambda table: read_group(table, plan=plan), cam, crf):
            batch = step(batch)
        row = batch.to_pylist()[0]
        summary.add(row["num_images"], list(zip(row["failed_ids"], row["reasons"], strict=True)))
    return summary
