"""What a run recorded of a metric, read back from MLflow."""

from __future__ import annotations

from objectaware.tracking.store import TrackingStore


def metric_history(store: TrackingStore, identity: str, metric: str) -> list[tuple[int, float]] | None:
    """Reads a metric of a stage's run, finished or not.

    Args:
        store: Where it is.
        identity: The stage's.
        metric: Name of the metric.

    Returns:
        Step and value, by rising step; None where the store has no run of this identity.
    """
    run = store.server.find_original(store.server.experiment_id(store.experiment), identity, store.storage_id)
    if run is None:
        return None
    points = store.server.client.get_metric_history(run.info.run_id, metric)
    return sorted({point.step: point.value for point in points}.items())
