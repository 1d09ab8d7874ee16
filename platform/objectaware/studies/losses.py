"""Study `losses`: the loss of several pretrainings over their epochs in one picture (paper, figure hard-loss)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.report.figures import curves
from objectaware.stages.identity import STAGE_FILE
from objectaware.stages.runner import Context
from objectaware.studies.engine import open_study, study_key
from objectaware.tracking.server import metric_history

# A checkpoint lies two folders below its stage's folder; a kept checkpoint lies three below.
_MAX_DEPTH = 4


def run_losses(context: Context, runs: Mapping[str, str], *, metric: str = "loss") -> dict[str, Any]:
    """Draw a metric of several pretrainings, as MLflow recorded it after each epoch.

    Args:
        context: Context of the stages.
        runs: Folder of each pretraining, or any checkpoint of it, by the name in the legend.
        metric: Name of the metric; docs/pretraining.md lists them.

    Returns:
        `curves`: the epochs (counted from 1) and the values, by name; `picture`: the address of the PNG, which is also
        in MLflow.

    Raises:
        InputError: A folder is not a pretraining's, or MLflow has no such metric of it.
    """
    identities = {name: _identity(address) for name, address in runs.items()}
    config = {"runs": identities, "metric": metric}
    with open_study(context, "losses", name=f"{metric} of pretrainings", dataset="", config=config) as (
        context,
        parent,
    ):
        series = {name: _series(context, runs[name], identity, metric) for name, identity in identities.items()}
        picture = curves(series, x_title="epoch", y_title=metric)
        parent.log_png(f"{metric}.png", picture)
        rows = [
            {"training": name, "epoch": epoch, metric: value}
            for name, (epochs, values) in series.items()
            for epoch, value in zip(epochs, values, strict=True)
        ]
        parent.log_table(metric, rows)
        folder = context.services.storage.child("losses").child(study_key(config))
        folder.write_bytes(f"{metric}.png", picture)
    return {
        "curves": {name: {"epochs": epochs, "values": values} for name, (epochs, values) in series.items()},
        "picture": f"{folder.uri}/{metric}.png",
    }


def _identity(address: str) -> str:
    """Return the identity of the pretraining whose folder, or a folder in it, lies at an address."""
    folder = Storage.from_uri(address)
    for _ in range(_MAX_DEPTH):
        if folder.exists(STAGE_FILE):
            record = folder.read_json(STAGE_FILE)
            if record["stage"] == "pretrain":
                return str(record["identity"])
        folder, name = folder.split()
        if not name:
            break
    problem = "is no folder of a pretraining, nor in one"
    raise InputError("runs", address, problem, "Give the folder that objectaware pretrain prints, or its checkpoint.")


def _series(context: Context, address: str, identity: str, metric: str) -> tuple[list[int], list[float]]:
    history = metric_history(context.services.tracking, identity, metric)
    if not history:
        problem = f"has no {metric} in the experiment {context.services.tracking.experiment} of MLflow"
        remedy = "Give the --experiment and MLFLOW_TRACKING_URI that it was trained with."
        raise InputError("runs", address, problem, remedy)
    return [step + 1 for step, _ in history], [value for _, value in history]
