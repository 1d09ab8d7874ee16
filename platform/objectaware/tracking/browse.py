"""Read back what MLflow holds of runs, for commands that look back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlflow.entities import Run

from objectaware.tracking.server import IDENTITY_TAG, PARENT_TAG, SOURCE_TAG
from objectaware.tracking.store import TrackingStore

_PAGE = 1000


@dataclass(frozen=True)
class RecordedRun:
    """A run as MLflow has it.

    Attributes:
        run_id: Its id there.
        name: Its name.
        identity: Identity of the stage, trial or study.
        kind: The kind of stage or of study.
        status: FINISHED, FAILED, KILLED or RUNNING.
        started: Milliseconds since 1970.
        parent_id: The run of the study that it belongs to.
        dataset: The data set that it is about; None where the run does not say so.
        metrics: The last value of each metric.
    """

    run_id: str
    name: str
    identity: str
    kind: str
    status: str
    started: int
    parent_id: str | None
    dataset: str | None
    metrics: Mapping[str, float]


def recorded_runs(store: TrackingStore) -> list[RecordedRun]:
    """Return all runs of a store's experiment, the oldest first, without links to other studies' runs.

    Raises:
        Exception: MLflow cannot be reached.
    """
    client = store.server.client
    experiment = client.get_experiment_by_name(store.experiment)
    if experiment is None:
        return []
    found: list[Run] = []
    token: str | None = None
    while True:
        page = client.search_runs(
            [experiment.experiment_id], max_results=_PAGE, order_by=["attributes.start_time ASC"], page_token=token
        )
        found += page
        token = page.token
        if not token:
            break
    return [
        RecordedRun(
            run.info.run_id,
            run.info.run_name,
            run.data.tags[IDENTITY_TAG],
            run.data.tags.get("stage") or run.data.tags.get("study") or "",
            run.info.status,
            run.info.start_time,
            run.data.tags.get(PARENT_TAG),
            run.data.tags.get("dataset"),
            dict(run.data.metrics),
        )
        for run in found
        if IDENTITY_TAG in run.data.tags and SOURCE_TAG not in run.data.tags
    ]


def metric_history(store: TrackingStore, identity: str, metric: str) -> list[tuple[int, float]] | None:
    """Read the values of a metric in a stage's run, finished or not.

    Args:
        store: The store that holds the run.
        identity: Identity of the stage.
        metric: Name of the metric.

    Returns:
        Pairs of step and value, by rising step; None if the store has no run of this identity.
    """
    run = store.server.find_original(store.server.experiment_id(store.experiment), identity, store.storage_id)
    if run is None:
        return None
    points = store.server.client.get_metric_history(run.info.run_id, metric)
    return sorted({point.step: point.value for point in points}.items())
