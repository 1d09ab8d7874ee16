"""Stage `detection`: a backbone fine-tuned to find COCO's objects, and how well it does; or how well others do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from objectaware.config import DetectionConfig
from objectaware.detection.run import open_training
from objectaware.detection.score import Scores
from objectaware.distributed.cluster import Need
from objectaware.distributed.detection import fine_tune, fine_tuning_needs
from objectaware.distributed.task import run_task, run_tasks
from objectaware.stages.identity import checkpoint_hash, data_hash
from objectaware.stages.measure_detection import (
    find_share,
    known_categories,
    load_published_network,
    object_coverage,
    open_test,
    score,
)
from objectaware.stages.progress import format_seconds, worker_notice
from objectaware.stages.runner import Context, StageResult, StageRun, run_stage

RESULTS_NAME = "detections.json"
"""COCO's result file in the stage's folder."""


def run_detection(context: Context, config: DetectionConfig, *, title: str | None = None) -> StageResult:
    """Fine-tunes a detector and scores it, or scores a published one; reuses what is finished.

    Returns:
        Values `box_ap` and, of a network that finds masks, `mask_ap`: COCO's average precision in per cent;
        `box` and `mask` with all of `average_precision`'s measures; `box_by_category` and `mask_by_category`;
        `coverage` (of `test`: the objects that precision is over, those of categories that training shows, and the
        objects left out; see `objectaware.evaluate.coverage.Coverage`);
        `detections` (address of COCO's result file); and, of a fine-tuned one, `checkpoint` (address of the folder)
        and the last log interval's losses.

    Raises:
        InputError: An input is missing or malformed, or training and test have no category in common.
    """
    inputs = {"test": data_hash(config.test, verify=context.verify)}
    if config.checkpoint is not None:
        assert config.data is not None
        inputs["checkpoint"] = checkpoint_hash(config.checkpoint)
        inputs["data"] = data_hash(config.data, verify=context.verify)
    else:
        assert config.published is not None
        inputs["published"] = checkpoint_hash(config.published)

    def compute(run: StageRun, config: DetectionConfig) -> Mapping[str, Any]:
        known = known_categories(config)
        values: dict[str, Any] = {"coverage": {"test": object_coverage(open_test(config), known).values()}}
        network = config.published
        if config.checkpoint is not None:
            recorder = _Recorder(run)
            network = fine_tune(config, name="train", storage=run.folder, on_record=recorder)
            values |= {"checkpoint": network, **recorder.last_metrics}
        assert network is not None
        run.progress.update(f"finding objects in {config.test.root}")
        return {**values, **_measure(run, config, network, known)}

    return run_stage(
        context,
        "detection",
        title or ("detection" if config.published is None else f"detection {Path(config.published).stem}"),
        config,
        inputs,
        compute,
        tags={"dataset": config.test.root},
        check=check_detection,
        needs=_needs,
    )


def check_detection(config: DetectionConfig) -> None:
    """Opens the images with their annotations, and the network.

    Raises:
        InputError: Something is missing or malformed, or does not fit.
    """
    test = open_test(config)
    if config.checkpoint is not None:
        images, _ = open_training(config)
        known = images.category_names
    else:
        load_published_network(config)
        known = known_categories(config)
    object_coverage(test, known)


def _needs(config: DetectionConfig) -> list[Need]:
    return [] if config.checkpoint is None else fine_tuning_needs(config.execution)


def _measure(run: StageRun, config: DetectionConfig, network: str, known: Sequence[str]) -> dict[str, Any]:
    num_shares = config.execution.num_workers
    shares = [(config, network, run.folder.child("shares"), share, num_shares) for share in range(num_shares)]
    found = run_tasks(find_share, shares, use_gpu=bool(config.execution.use_gpu))
    records = [record for share in found for record in share]
    run.folder.write_bytes(RESULTS_NAME, json.dumps(records).encode())
    scores = run_task(score, config, records, known)
    values: dict[str, Any] = {"detections": run.folder.child(RESULTS_NAME).uri}
    for kind, (measures, by_category) in scores.items():
        values |= {f"{kind}_ap": measures["ap"], kind: measures, f"{kind}_by_category": by_category}
        run.tracker.log_metrics({f"{kind}.{name}": value for name, value in measures.items()})
    _log_tables(run, scores)
    return values


def _log_tables(run: StageRun, scores: Scores) -> None:
    run.tracker.log_table("detection", [{"overlap of": kind, **measures} for kind, (measures, _) in scores.items()])
    names = scores["box"][1]
    rows = [
        {"category": name, **{f"{kind} ap": by_category[name] for kind, (_, by_category) in scores.items()}}
        for name in names
    ]
    run.tracker.log_table("detection by category", rows)


class _Recorder:
    """Turns the workers' records into progress and metrics."""

    def __init__(self, run: StageRun) -> None:
        self._run = run
        self.last_metrics: dict[str, float] = {}

    def __call__(self, record: Mapping[str, Any]) -> None:
        if record["kind"] == "epoch":
            metrics = {key: float(value) for key, value in record.items() if key not in ("kind", "epoch", "iteration")}
            self._run.tracker.log_metrics(metrics, step=int(record["iteration"]))
            self.last_metrics = metrics
        elif record["kind"] == "progress":
            self._run.progress.update(_text(record))
        elif (notice := worker_notice(record)) is not None:
            self._run.progress.line(notice)


def _text(record: Mapping[str, Any]) -> str:
    iteration, last = int(record["iteration"]), int(record["num_iterations"])
    left = (last - iteration) * float(record["seconds_per_iteration"])
    return f"iteration {iteration}/{last} · loss {record['loss']:.3f} · {format_seconds(left)} left"
