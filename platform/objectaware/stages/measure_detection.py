"""What the tasks of the stage `detection` compute."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from objectaware.config import DetectionConfig
from objectaware.data.coco import CocoDataset, instances_file
from objectaware.data.storage import Storage
from objectaware.detection.data import open_coco, usable_categories
from objectaware.detection.detect import Detector, Record, detect_objects, fine_tuned_detector
from objectaware.detection.export import load_detector
from objectaware.detection.published import LABELS, load_published, published_detector
from objectaware.detection.score import Kind, Scores, average_precision, category_numbers
from objectaware.evaluate.coverage import Coverage
from objectaware.methods.checkpoint import local_checkpoint


def find_share(config: DetectionConfig, network: str, kept: Storage, share: int, num_shares: int) -> list[Record]:
    """Finds the objects of a share of the test's images, or takes what was found before.

    Args:
        config: Of the stage.
        network: Address of the fine-tuned or published network.
        kept: Folder that shares are kept in.
        share: Number of the share, from 0: images `share`, `share + num_shares`, …
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
    """Opens the test's images and all that finding, counting and scoring their objects takes of the annotations.

    Raises:
        InputError: Something is missing or malformed.
    """
    return open_coco(config.test, "area")


def known_categories(config: DetectionConfig) -> tuple[str, ...]:
    """Names of the categories that the network has learnt, or is going to: those with objects in its training data."""
    if config.published is not None:
        return tuple(LABELS)
    assert config.data is not None
    coco = open_coco(config.data)
    return tuple(coco.category_names[category] for category in usable_categories(coco))


def object_coverage(coco: CocoDataset, known: Sequence[str]) -> Coverage:
    """Counts the test's objects that a network could find.

    Args:
        coco: The test.
        known: Names of the categories that the network knows.

    Raises:
        InputError: The test shows none of them.
    """
    numbers = usable_categories(coco)
    names = (coco.category_names[category] for category, number in numbers.items() for _ in range(number))
    return Coverage.of("test", names, known)


def score(config: DetectionConfig, records: Sequence[Record], known: Sequence[str]) -> Scores:
    """`average_precision` over the known categories, of boxes, and of masks where there are some."""
    numbers = open_test(config).numbers
    kinds: tuple[Kind, ...] = ("box", "mask") if _finds_masks(config, records) else ("box",)
    return {kind: average_precision(records, annotation_file(config), numbers, kind, known=known) for kind in kinds}


def annotation_file(config: DetectionConfig) -> Path:
    """COCO's annotations of the test's images."""
    assert config.test.split is not None
    return instances_file(config.test.root, config.test.split)


def _finds_masks(config: DetectionConfig, records: Sequence[Record]) -> bool:
    return config.published is None or any("segmentation" in record for record in records)


def load_published_network(config: DetectionConfig) -> nn.Module:
    """Loads the published detector that a configuration names.

    Raises:
        InputError: The file cannot be read or holds another network.
    """
    assert config.published is not None
    with local_checkpoint(config.published) as path:
        return load_published(
            path,
            short_side=config.test_short_side,
            max_side=config.max_side,
            num_proposals=config.num_test_proposals,
        )


def _detector(config: DetectionConfig, network: str) -> tuple[Detector, dict[int, int]]:
    """The detector, and COCO's number of each of its labels."""
    device = torch.device("cuda" if config.execution.use_gpu else "cpu")
    numbers = category_numbers(annotation_file(config))
    if config.published is not None:
        labels = {label: numbers[name] for name, label in LABELS.items() if name in numbers}
        return published_detector(load_published_network(config).to(device), device), labels
    sizes: dict[str, Any] = {"short_side": config.test_short_side, "max_side": config.max_side}
    fine_tuned, names = load_detector(network, num_test_proposals=config.num_test_proposals)
    labels = {place + 1: numbers[name] for place, name in enumerate(names) if name in numbers}
    return fine_tuned_detector(fine_tuned.to(device), **sizes, device=device), labels
