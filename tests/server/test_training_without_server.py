"""An MLflow server that is away for half a minute in the middle of a training."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from logging.handlers import QueueHandler
from pathlib import Path
from queue import Queue

import pytest
from mlflow import MlflowClient

from in_process import write_colours
from mlflow_server import free_port, mlflow_server_on
from objectaware.data.storage import Storage
from objectaware.stages.pretrain import pretrain
from objectaware.stages.progress import Progress
from objectaware.stages.runner import Context, EpochWatch, Services
from objectaware.tracking import TrackingStore
from tiny_training import tiny_training

NUM_EPOCHS = 12
# The sender tries again after 2, 4, 8 and 16 seconds: the fifth failure comes half a minute after the first.
NUM_FAILURES = 5


@pytest.fixture
def reports() -> Iterator[Queue[logging.LogRecord]]:
    """What the sender tells of each of its failures."""
    queue: Queue[logging.LogRecord] = Queue()
    handler, logger = QueueHandler(queue), logging.getLogger("objectaware.tracking.delivery")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield queue
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.chaos(fault="MLflow away for 30 seconds while training", holds="training goes on, no metric missing")
def test_training_goes_on_and_no_metric_is_missing(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reports: Queue[logging.LogRecord]
) -> None:
    port, database = free_port(), f"sqlite:///{tmp_path / 'server.db'}"
    artifacts = (tmp_path / "artifacts").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    data = write_colours(tmp_path / "photos", {"red": "red", "blue": "blue"}, 16)
    config = tiny_training(data, num_epochs=NUM_EPOCHS, queue_size=32)
    trained: dict[int, Mapping[str, float]] = {}
    failures: list[float] = []
    with ExitStack() as running:

        def start() -> None:
            running.enter_context(mlflow_server_on(database, artifacts, port=port))

        def on_epoch(epoch: int, metrics: Mapping[str, float]) -> None:
            trained[epoch] = metrics
            if epoch == 2:
                running.close()
            if epoch == NUM_EPOCHS - 2:
                while len(failures) < NUM_FAILURES:
                    report = reports.get(timeout=120)
                    if str(port) in report.getMessage():  # and not of another test's sender
                        failures.append(report.created)
                start()

        start()
        tracking = TrackingStore.open(tmp_path / "runs")
        storage = Storage.from_uri(tmp_path / "runs")
        context = Context(Services(storage, tracking, Progress(io.StringIO())), watch=EpochWatch(on_epoch))
        result = pretrain(context, config)
        assert tracking.send_leftovers(120) == 0

        assert failures[-1] - failures[0] > 30
        assert sorted(trained) == list(range(NUM_EPOCHS))
        client = MlflowClient(f"http://127.0.0.1:{port}")
        (run,) = client.search_runs([tracking.server.experiment_id(tracking.experiment)])
        assert (run.info.run_id, run.info.status) == (result.run_id, "FINISHED")
        for name in trained[0]:
            history = client.get_metric_history(run.info.run_id, name)
            recorded = sorted((point.step, point.value) for point in history)
            assert recorded == [(epoch, pytest.approx(metrics[name])) for epoch, metrics in sorted(trained.items())]
