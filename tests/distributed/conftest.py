"""Small inputs of pretraining and localization."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

NUM_IMAGES = 44


@pytest.fixture(scope="session")
def tiny_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 44 small pictures, each a disc on noise, of differing sizes."""
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    for number in range(NUM_IMAGES):
        height, width = 40 + number % 5, 48
        picture = random.integers(0, 90, (height, width, 3), dtype=np.uint8)
        center = (int(random.integers(14, 34)), int(random.integers(14, 26)))
        cv2.circle(picture, center, 9, random.integers(120, 255, 3).tolist(), thickness=-1)
        cv2.imwrite(str(folder / f"picture {number:02d}.png"), picture)
    return folder
