"""Study `few_shot`: the error after a look at a few images, over the epochs of a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from objectaware.data.dataset import Dataset
from objectaware.report.figures import curves
from objectaware.stages.features import check_checkpoint, check_sets
from objectaware.stages.few_shot import FewShotConfig
from objectaware.stages.runner import Context
from objectaware.studies.engine import Step, open_study, run
from objectaware.tracking import Tracker
from objectaware.training.checkpoints import checkpoint_epoch


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
    check_sets({"data": Dataset(config.data)}, config.class_names)
    for checkpoint in checkpoints:
        check_checkpoint(checkpoint, config.image_size)
    titles = [f"{config.num_shots}-shot {_place(checkpoint)}" for checkpoint in checkpoints]
    steps = [
        Step(number, "few_shot", config.model_copy(update={"checkpoint": checkpoint}), title=title)
        for number, (checkpoint, title) in enumerate(zip(checkpoints, titles, strict=True))
    ]
    dumped = {**config.model_dump(mode="json"), "checkpoint": list(checkpoints)}
    root = config.data.root
    with open_study(context, "few_shot", name=f"few shot {root}", dataset=root, config=dumped) as (context, parent):
        results = run(context, steps).results
        curve = [
            {"checkpoint": checkpoint, "epoch": epoch_of(checkpoint), **results[number].values["error"]}
            for number, checkpoint in enumerate(checkpoints)
        ]
        _log_curve(parent, curve)
    return {"curve": curve}


def _place(checkpoint: str) -> str:
    epoch = epoch_of(checkpoint)
    return checkpoint if epoch is None else f"epoch {epoch}"


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
