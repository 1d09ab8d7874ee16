"""Studies `few_shot` and `losses`: a number of trainings over their epochs, in one picture.

`few_shot` is the error after a look at a few images, `losses` the loss of pretrainings (paper, figure hard-loss).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.report.figures import curves
from objectaware.report.tables import report_of
from objectaware.stages.features import check_sources
from objectaware.stages.few_shot import FewShotConfig
from objectaware.stages.identity import STAGE_FILE
from objectaware.stages.runner import Context
from objectaware.studies.engine import Step, open_study, run, study_key
from objectaware.tracking import Tracker, TrackingStore
from objectaware.training.loop import checkpoint_epoch

# A checkpoint lies two folders below its stage's folder; a kept checkpoint lies three below.
_MAX_DEPTH = 4


def run_few_shot_curve(context: Context, config: FewShotConfig, checkpoints: Sequence[str]) -> dict[str, Any]:
    """Measure several checkpoints of one training, such as those that pretraining keeps, under one parent run.

    Args:
        context: Context of the stages.
        config: Configuration of the stage. Its checkpoint is ignored.
        checkpoints: Addresses of the checkpoints, in the order of the curve. A path must be absolute.

    Returns:
        Value `curve`: for each checkpoint `checkpoint`, `epoch` (number of trained epochs; None if the name of the
        folder does not contain it), and `mean` and `std` of the error.
    """
    check_sources(config, checkpoints=checkpoints)
    steps: list[Step] = []
    points: list[dict[str, Any]] = []
    for number, checkpoint in enumerate(checkpoints):
        epoch = epoch_of(checkpoint)
        title = f"{config.num_shots}-shot {checkpoint if epoch is None else f'epoch {epoch}'}"
        steps.append(Step(number, "few_shot", config.model_copy(update={"checkpoint": checkpoint}), title=title))
        points.append({"checkpoint": checkpoint, "epoch": epoch})
    dumped = {**config.model_dump(mode="json"), "checkpoint": list(checkpoints)}
    root = config.data.root
    with open_study(context, "few_shot", name=f"few shot {root}", dataset=root, config=dumped) as (context, parent):
        results = run(context, steps).results
        curve = [{**point, **results[number].values["error"]} for number, point in enumerate(points)]
        _log_curve(parent, curve)
        parent.log_report(report_of(f"Few shot, {root}", {"error in per cent": curve}))
    return {"curve": curve}


def _log_curve(parent: Tracker, curve: Sequence[Mapping[str, Any]]) -> None:
    parent.log_table("few shot", curve)
    has_epochs = all(point["epoch"] is not None for point in curve)
    places = [point["epoch"] if has_epochs else number for number, point in enumerate(curve, start=1)]
    for place, point in zip(places, curve, strict=True):
        parent.log_metrics({"error": point["mean"], "error_std": point["std"]}, step=place)
    picture = curves(
        {"error": (places, [point["mean"] for point in curve])},
        x_title="epoch" if has_epochs else "checkpoint",
        y_title="error in per cent",
        deviations={"error": [point["std"] for point in curve]},
    )
    parent.log_png("few_shot.png", picture)


def epoch_of(checkpoint: str) -> int | None:
    """Return the number of epochs that a checkpoint was trained for, read from its folder's name."""
    epoch = checkpoint_epoch(checkpoint.rstrip("/").rpartition("/")[2])
    return None if epoch is None else epoch + 1


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
    name = f"{metric} of pretrainings"
    with open_study(context, "losses", name=name, dataset="", config=config) as (context, parent):
        tracking = context.services.tracking
        series = {
            name: metric_series(tracking, identity, metric, shown=("runs", runs[name]))
            for name, identity in identities.items()
        }
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
    problem = "is neither the folder of a pretraining nor in one"
    raise InputError("runs", address, problem, "Give the folder that objectaware pretrain prints, or its checkpoint.")


def metric_series(
    tracking: TrackingStore, identity: str, metric: str, *, shown: tuple[str, str]
) -> tuple[list[int], list[float]]:
    """Return the epochs of a pretraining, counted from 1, and a metric after each, as MLflow recorded it.

    Args:
        tracking: MLflow store in use.
        identity: Identity of the pretraining.
        metric: Name of the metric.
        shown: Field and value of the error message, should there be one.

    Raises:
        InputError: MLflow has no such metric of it.
    """
    history = tracking.metric_history(identity, metric)
    if not history:
        problem = f"has no {metric} in the experiment {tracking.experiment} of MLflow"
        remedy = "Give the --experiment and MLFLOW_TRACKING_URI that it was trained with."
        raise InputError(*shown, problem, remedy)
    return [step + 1 for step, _ in history], [value for _, value in history]
