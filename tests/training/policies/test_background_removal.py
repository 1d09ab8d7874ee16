"""Policy `background_removal`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from objectaware.config import PolicyInputs, PretrainConfig
from objectaware.data.dataset import TrainingImages
from objectaware.training.policies.background_removal import BackgroundRemoval
from pictures import Gradients
from published_trees import write_cub

PICTURE = Gradients().read(3)
HALF = np.repeat(np.array([[255, 0]], dtype=np.uint8), 50, axis=1).repeat(100, axis=0)  # (100, 100)


def _change(policy: BackgroundRemoval, *draws: float) -> np.ndarray:
    return policy.change_patch(PICTURE, 3, (0, 0, 100, 100), 100, 100, np.array(draws))


def test_the_object_stays_and_the_rest_is_one_grey() -> None:
    changed = _change(BackgroundRemoval(([HALF] * 4).__getitem__, probability=1.0), 0.0, 0.5)
    assert np.array_equal(changed[:, :50], PICTURE[:, :50])
    assert (changed[:, 50:] == 128).all()


def test_as_many_views_lose_their_background_as_the_probability_says() -> None:
    policy = BackgroundRemoval(([HALF] * 4).__getitem__, probability=0.3)
    assert not np.array_equal(_change(policy, 0.29, 0.0), PICTURE)
    assert np.array_equal(_change(policy, 0.3, 0.0), PICTURE)


def test_a_picture_in_which_nothing_was_found_stays() -> None:
    for mask in (None, np.zeros_like(HALF)):
        assert np.array_equal(_change(BackgroundRemoval(([mask] * 4).__getitem__, probability=1.0), 0.0, 0.0), PICTURE)


def test_it_takes_true_masks_by_its_name_in_a_recipe(tmp_path: Path) -> None:
    write_cub(tmp_path / "cub")
    data = {"root": str(tmp_path / "cub"), "layout": "cub", "split": "train"}
    policy = {"name": "background_removal", "masks": "ground_truth", "remove_probability": 1.0}
    config = PretrainConfig.model_validate({"batch_size": 2, "data": data, "policy": policy})
    images = TrainingImages(config.data.open(), max_bytes=0)
    built = config.policy.build(PolicyInputs(config.data, images, config.method, tmp_path))
    picture = images.read(0)
    height, width = picture.shape[:2]
    changed = built.change_patch(picture, 0, (0, 0, height, width), height, width, np.array([0.0, 0.0]))
    assert not changed[0, 0].any()
    assert not np.array_equal(changed, np.zeros_like(changed))
    with pytest.raises(ValidationError, match="remove_probability"):
        PretrainConfig.model_validate({"data": data, "policy": {**policy, "remove_probability": 1.5}})
