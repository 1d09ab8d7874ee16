"""The evaluations' work on small data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError

from objectaware.config import DataConfig, LinearConfig
from objectaware.stages.measure_linear import _among, measure_linear


def write_colours(root: Path, colours: dict[str, str], num_images: int) -> DataConfig:
    """A folder a class, each picture in the colour of its class, with noise."""
    generator = np.random.default_rng(0)
    for name, colour in colours.items():
        (root / name).mkdir(parents=True)
        for number in range(num_images):
            pixels = np.asarray(Image.new("RGB", (32, 32), colour), dtype=np.int64)
            noisy = (pixels + generator.integers(-20, 21, pixels.shape)).clip(0, 255)
            Image.fromarray(noisy.astype(np.uint8)).save(root / name / f"{number}.png")
    return DataConfig(root=str(root), layout="class-folders")


def test_accuracy_by_class_names_the_classes_that_have_test_images(tmp_path: Path, tiny_checkpoint: Path) -> None:
    colours = {"grass": "green", "sky": "blue", "brick": "red"}
    config = LinearConfig(
        checkpoint=str(tiny_checkpoint),
        train=write_colours(tmp_path / "train", colours, 6),
        tests={
            "all": write_colours(tmp_path / "all", colours, 2),
            # Numbered 0 and 1, hence the training's brick and grass: the pictures of grass show a blue sky.
            "swapped": write_colours(tmp_path / "swapped", {"brick": "red", "grass": "blue"}, 2),
        },
        image_size=32,
        holdout_size=6,
        num_penalties=5,
    )
    values = measure_linear(config)
    assert values["class_accuracies"]["all"] == {"brick": 100.0, "grass": 100.0, "sky": 100.0}
    assert values["class_accuracies"]["swapped"] == {"brick": 100.0, "grass": 0.0}
    assert values["accuracies"] == {"all": 100.0, "swapped": 50.0}


def test_two_holdouts_are_refused(tmp_path: Path) -> None:
    data = DataConfig(root=str(tmp_path), layout="class-folders")
    with pytest.raises(ValidationError, match="leave one of them out"):
        LinearConfig(checkpoint="c", train=data, tests={}, holdout_size=5, holdout_fraction=0.1)


def test_classes_are_numbered_by_those_that_were_shown() -> None:
    known = torch.tensor([2, 5, 9])
    places = _among(known, torch.tensor([9, 2, 3, 12, 5, 0]))
    assert places.tolist() == [2, 0, 3, 3, 1, 3]
    assert _among(known, known).tolist() == [0, 1, 2]
