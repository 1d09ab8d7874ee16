"""How large a local Ray the commands start. None is started here."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from objectaware.cli import run
from objectaware.commands import common
from objectaware.config import PretrainConfig
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.stages.progress import Progress
from objectaware.stages.runner import Context, Services
from objectaware.studies import engine
from objectaware.studies.engine import Step
from replaced_ray import replace_ray

FOLDER_RECIPE = "data: {root: photos}\nbatch_size: 60\nexecution: {num_workers: 10, num_compute_threads: 3}\n"
LOCALIZE_RECIPE = "execution: {num_cam_actors: 4, num_compute_threads: 5, num_crf_actors: 6}\n"
LOCALIZE_ON_CPU_RECIPE = LOCALIZE_RECIPE.replace("{", "{use_gpu: false, ")
LOCALIZERS_RECIPE = f"""\
data: {{root: coco, layout: coco, split: val}}
checkpoint: checkpoint
localizers: {{contracam: {{}}}}
shared: {{{LOCALIZE_ON_CPU_RECIPE.strip()}}}
"""
SWEEP = """\
name: seeds
stages:
  network:
    stage: pretrain
    fields: {data: {root: photos}, batch_size: 60, execution: {num_workers: 5, use_gpu: false}}
parameters: {network.method.momentum: [0.9, 0.99]}
metric: network.loss
execution: {max_concurrent: 6}
"""
DEMO_RECIPE = """\
pretrain: {batch_size: 60, execution: {num_workers: 2, num_compute_threads: 1}}
retrain: {execution: {num_workers: 3, num_compute_threads: 30}}
"""


class _StartedError(BaseException):
    """Stands in for a start of Ray; unlike an error, it is not followed by a second try."""


@dataclass(frozen=True)
class _AtOnce(Services):
    """Starts Ray with the command, and not with the first stage that has something to compute."""

    def __post_init__(self) -> None:
        self.start_ray()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """Settings of each start of Ray, which goes no further, in an empty working directory."""
    starts: list[dict[str, Any]] = []

    def start(**settings: Any) -> None:
        starts.append(settings)
        raise _StartedError

    replace_ray(monkeypatch, start)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    open_records = common.open_records

    @contextmanager
    def open_at_once(given: common.Common) -> Iterator[Context]:
        with open_records(given) as context:
            yield replace(context, services=_AtOnce(**vars(context.services)))

    monkeypatch.setattr(common, "open_records", open_at_once)
    # A server is not asked for anything at the start; a fresh SQLite file takes seconds.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    return starts


@pytest.mark.parametrize(
    ("arguments", "recipe", "num_cpus"),
    [
        (["pretrain", "recipe.yaml"], FOLDER_RECIPE, 30),
        (["pretrain", "recipe.yaml", "--execution.num_workers", "1"], FOLDER_RECIPE, 8),
        # Readers as many as ContraCAM processes: 4 + 4 × 5 + 6.
        (["localize", "photos", "--checkpoint", "checkpoint", "--recipe", "recipe.yaml"], LOCALIZE_ON_CPU_RECIPE, 30),
        (["evaluate", "localizers", "recipe.yaml"], LOCALIZERS_RECIPE, 30),
        # A GPU may turn up, for which eight readers a process decode: 4 × 8 + 6.
        (["localize", "photos", "--checkpoint", "checkpoint", "--recipe", "recipe.yaml"], LOCALIZE_RECIPE, 38),
        (["demo", "--recipe", "recipe.yaml"], DEMO_RECIPE, 90),
        # As many trials at once as the sweep says, of five workers each.
        (["sweep", "recipe.yaml"], SWEEP, 30),
        (["sweep", "recipe.yaml", "--execution.max_concurrent", "1"], SWEEP, 8),
    ],
)
def test_a_local_ray_is_large_enough_for_the_stage(
    arguments: list[str], recipe: str, num_cpus: int, started: list[dict[str, Any]]
) -> None:
    Path("recipe.yaml").write_text(recipe)
    with pytest.raises(_StartedError):
        run(arguments)
    assert [settings["num_cpus"] for settings in started] == [num_cpus]


@pytest.mark.parametrize("fields", ["pretrain: {num_epochs: 0}", "retrain: {num_epochs: 0}"])
def test_a_demo_whose_trainings_are_no_trainings_is_refused_before_anything_starts(
    fields: str, started: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("recipe.yaml").write_text(fields)
    assert run(["demo", "--recipe", "recipe.yaml"]) == 2
    assert "num_epochs = 0" in capsys.readouterr().err
    assert started == []


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ("data: {root: fotos}", "is not an existing folder"),
        ("data: {root: fotos, layout: shards}", "holds no finished pack"),
    ],
)
def test_a_training_on_images_that_are_not_there_is_refused_before_anything_starts(
    fields: str, problem: str, started: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("recipe.yaml").write_text(fields)
    assert run(["pretrain", "recipe.yaml"]) == 2
    assert problem in capsys.readouterr().err
    assert started == []


@pytest.fixture
def rays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[float]:
    """The sizes of the Rays that a command starts, none of which is one."""
    started: list[float] = []

    @contextmanager
    def ray_cluster(*, min_cpus: float) -> Iterator[None]:
        started.append(min_cpus)
        yield

    monkeypatch.setattr("objectaware.distributed.cluster.ray_cluster", ray_cluster)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.chdir(tmp_path)
    return started


def test_a_cluster_that_is_refused_is_refused_to_each_stage(rays: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise InputError("MLFLOW_TRACKING_URI", "runs", "is not the cluster's", "Start a server.")

    monkeypatch.setattr("objectaware.stages.machine.require_server", refuse)
    with common.open_context(common.DEFAULTS) as context:
        for _ in range(2):
            with pytest.raises(InputError, match="not the cluster's"):
                context.services.start_ray()


def test_a_command_can_be_told_to_end_before_ray_starts(rays: list[float]) -> None:
    def work() -> None:
        with common.open_context(common.DEFAULTS):
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(10)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert rays == []


def test_a_wrong_address_is_refused_before_anything_is_read(rays: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "localhost")
    with pytest.raises(InputError, match="is not HOST:PORT"), common.open_context(common.DEFAULTS):
        raise AssertionError("too late")
    assert not Path("runs").exists()


def test_a_table_ends_where_ray_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def start_ray() -> None:
        tries.append(1)
        raise InputError("RAY_ADDRESS", "10.0.0.1:6379", "no Ray cluster answers there", "Start one.")

    context = Context(Services(Storage.from_uri("runs"), None, Progress(), start_ray))  # type: ignore[arg-type]
    monkeypatch.setattr(engine, "run_step", lambda context, *_: context.services.start_ray())
    config = PretrainConfig.model_validate({"data": {"root": "photos"}})
    steps = [Step(name, "pretrain", config) for name in ("a", "b")]
    with pytest.raises(InputError, match="no Ray cluster"):
        engine.run(context, steps, keep_going=True)
    assert len(tries) == 1
