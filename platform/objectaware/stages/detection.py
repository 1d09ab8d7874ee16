"""Stage `detection`: fine-tune a backbone to find COCO's objects and score it, or score a published detector."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from objectaware.config import DetectionConfig
from objectaware.data.sets.coco import CocoDataset, instances_file
from objectaware.data.storage import Storage
from objectaware.detection.data import open_coco, usable_categories
from objectaware.detection.detect import (
    LABELS,
    Detector,
    Kind,
    Record,
    Scores,
    average_precision,
    category_numbers,
    detect_objects,
    fine_tuned_detector,
    load_detector,
    load_published,
    published_detector,
)
from objectaware.detection.fine_tuning import open_training, run_fine_tuning
from objectaware.distributed.room import Need
from objectaware.distributed.task import run_task, run_tasks
from objectaware.distributed.train import train_on_ray, training_needs
from objectaware.evaluate.coverage import Coverage
from objectaware.methods.checkpoint import local_checkpoint
from objectaware.stages.identity import TRAINING_OUTPUTS, checkpoint_hash, data_hash
from objectaware.stages.progress import TrainingRecorder, format_seconds
from objectaware.stages.registry import stage
from objectaware.stages.runner import Computation, Context, StageRun

RESULTS_NAME = "detections.json"
"""COCO's result file in the stage's folder."""


def _needs(config: DetectionConfig) -> list[Need]:
    return [] if config.checkpoint is None else training_needs(config.execution)


@stage(
    "detection",
    version=3,
    outcome="checkpoint",
    outputs=(*TRAINING_OUTPUTS, "shares/share-*.json", RESULTS_NAME),
    needs=_needs,
)
def detection(context: Context, config: DetectionConfig) -> Computation[DetectionConfig]:
    """Fine-tune a detector on a checkpoint's backbone and score it, or score a published one.

    Returns:
        Values `box_ap` and, if the network finds masks, `mask_ap`: COCO's average precision in per cent;
        `box` and `mask` with all of `average_precision`'s measures; `box_by_category` and `mask_by_category`;
        `coverage` (of `test`: the objects that the precision covers, which are those of categories seen in training,
        and the objects left out; see `objectaware.evaluate.coverage.Coverage`); `detections` (address of COCO's result
        file). A fine-tuned network adds `checkpoint` (address of the folder) and the losses of the last log interval.

    Raises:
        InputError: An input is missing or malformed, or training and test have no category in common.
    """
    inputs = {"test": data_hash(config.test, verify=context.mode.verify)}
    if config.data is not None:
        inputs["data"] = data_hash(config.data, verify=context.mode.verify)
    for name, address in (("checkpoint", config.checkpoint), ("published", config.published)):
        if address is not None:
            inputs[name] = checkpoint_hash(address)

    def compute(run: StageRun, config: DetectionConfig) -> Mapping[str, Any]:
        known = known_categories(config)
        values: dict[str, Any] = {"coverage": {"test": object_coverage(open_test(config), known).values()}}
        network = config.published
        if config.checkpoint is not None:
            recorder = TrainingRecorder(run, _progress_text)
            network = train_on_ray(run_fine_tuning, config, storage=run.folder, on_record=recorder)
            values |= {"checkpoint": network, **recorder.last_metrics}
        assert network is not None
        run.progress.update(f"finding objects in {config.test.root}")
        return {**values, **_measure(run, config, network, known)}

    return Computation(
        title="detection" if config.published is None else f"detection {Path(config.published).stem}",
        inputs=inputs,
        compute=compute,
        tags={"dataset": config.test.root},
        check=check_detection,
        least_needs=_needs,
        networks=[] if config.checkpoint is None else [config.checkpoint],
    )


def check_detection(config: DetectionConfig) -> None:
    """Open the images with their annotations, and the network.

    Raises:
        InputError: An input is missing or malformed, or does not fit.
    """
    test = open_test(config)
    if config.checkpoint is not None:
        images, _ = open_training(config)
        known = images.category_names
    else:
        load_published_network(config)
        known = known_categories(config)
    object_coverage(test, known)


def _measure(run: StageRun, config: DetectionConfig, network: str, known: Sequence[str]) -> dict[str, Any]:
    num_shares = config.execution.num_workers
    shares = [(config, network, run.folder.child("shares"), share, num_shares) for share in range(num_shares)]
    wait = config.execution.max_wait_minutes
    found = run_tasks(find_share, shares, use_gpu=bool(config.execution.use_gpu), max_wait_minutes=wait)
    records = [record for share in found for record in share]
    run.folder.write_bytes(RESULTS_NAME, json.dumps(records).encode())
    scores = run_task(score, config, records, known, max_wait_minutes=wait)
    values: dict[str, Any] = {"detections": run.folder.child(RESULTS_NAME).uri}
    for kind, (measures, by_category) in scores.items():
        values |= {f"{kind}_ap": measures["ap"], kind: measures, f"{kind}_by_category": by_category}
        measured = {f"{kind}.{name}": value for name, value in measures.items()}
        run.tracker.log_metrics(measured, model=config.checkpoint)
    run.tracker.log_table("detection", [{"overlap of": kind, **measures} for kind, (measures, _) in scores.items()])
    rows = [
        {"category": name, **{f"{kind} ap": by_category[name] for kind, (_, by_category) in scores.items()}}
        for name in scores["box"][1]
    ]
    run.tracker.log_table("detection by category", rows)
    return values


def _progress_text(record: Mapping[str, Any], _: Mapping[str, float]) -> str:
    iteration, last = int(record["iteration"]), int(record["num_iterations"])
    left = format_seconds((last - iteration) * float(record["seconds_per_iteration"]))
    return f"iteration {iteration}/{last} · loss {record['loss']:.3f} · {left} left"


def find_share(config: DetectionConfig, network: str, kept: Storage, share: int, num_shares: int) -> list[Record]:
    """Find the objects in one share of the test images, or return those found earlier.

    Args:
        config: The stage's configuration.
        network: Address of the fine-tuned or published network.
        kept: Folder in which finished shares are kept.
        share: Number of the share, from 0. It has the images `share`, `share + num_shares`, …
        num_shares: Number of shares.

    Returns:
        COCO's result records.

    Raises:
        InputError: The network or an image cannot be read.
    """
    name = f"share-{share:04d}-of-{num_shares:04d}.json"
    if kept.exists(name):
        return list(kept.read_json(name))
    torch.set_num_threads(config.execution.num_compute_threads or max(len(os.sched_getaffinity(0)) // num_shares, 1))
    coco = open_test(config)
    detector, numbers = _detector(config, network)
    records = detect_objects(detector, coco, range(share, len(coco), num_shares), numbers)
    kept.write_json(name, records)
    return records


def open_test(config: DetectionConfig) -> CocoDataset:
    """Open the test images with the annotations needed to find, count and score their objects.

    Raises:
        InputError: An input is missing or malformed.
    """
    return open_coco(config.test, "area")


def known_categories(config: DetectionConfig) -> tuple[str, ...]:
    """Return the names of the categories that the network knows or will learn.

    They are those with objects in its training data. A published network knows COCO's categories.
    """
    if config.published is not None:
        return tuple(LABELS)
    assert config.data is not None
    coco = open_coco(config.data)
    return tuple(coco.category_names[category] for category in usable_categories(coco))


def object_coverage(coco: CocoDataset, known: Sequence[str]) -> Coverage:
    """Count the test's objects that a network could find.

    Args:
        coco: The test images with their annotations.
        known: Names of the categories that the network knows.

    Raises:
        InputError: The test has no object of a known category.
    """
    numbers = usable_categories(coco)
    names = (coco.category_names[category] for category, number in numbers.items() for _ in range(number))
    return Coverage.of("test", names, known)


def score(config: DetectionConfig, records: Sequence[Record], known: Sequence[str]) -> Scores:
    """Return `average_precision` over the known categories, for boxes and, if there are any, for masks."""
    numbers = open_test(config).numbers
    finds_masks = config.published is None or any("segmentation" in record for record in records)
    kinds: tuple[Kind, ...] = ("box", "mask") if finds_masks else ("box",)
    return {kind: average_precision(records, annotation_file(config), numbers, kind, known=known) for kind in kinds}


def annotation_file(config: DetectionConfig) -> Path:
    """Return the path of COCO's annotations of the test images."""
    assert config.test.split is not None
    return instances_file(config.test.root, config.test.split)


def load_published_network(config: DetectionConfig) -> nn.Module:
    """Load the published detector that a configuration names.

    Raises:
        InputError: The file cannot be read or holds another network.
    """
    assert config.published is not None
    with local_checkpoint(config.published) as path:
        return load_published(
            path, short_side=config.test_short_side, max_side=config.max_side, num_proposals=config.num_test_proposals
        )


def _detector(config: DetectionConfig, network: str) -> tuple[Detector, dict[int, int]]:
    """Return the detector, and for each of its labels COCO's number of the category."""
    device = torch.device("cuda" if config.execution.use_gpu else "cpu")
    numbers = category_numbers(annotation_file(config))
    if config.published is not None:
        labels = {label: numbers[name] for name, label in LABELS.items() if name in numbers}
        return published_detector(load_published_network(config).to(device), device), labels
    fine_tuned, names = load_detector(network, num_test_proposals=config.num_test_proposals)
    labels = {place + 1: numbers[name] for place, name in enumerate(names) if name in numbers}
    short_side, max_side = config.test_short_side, config.max_side
    return fine_tuned_detector(fine_tuned.to(device), short_side=short_side, max_side=max_side, device=device), labels
