"""Rates of this machine: all that is asked for is there, of the device's own kind, and in the right order."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from objectaware.errors import InputError
from objectaware.planning import measure
from objectaware.planning.measure import MeasureConfig
from objectaware.planning.model import Rates, StageName

STARTS: dict[StageName, float] = {"pretrain": 3.0, "localize": 2.0, "linear": 1.0}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five photos of 60 × 40 pixels."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(5):
        pixels = np.random.default_rng(number).integers(0, 255, (40, 60, 3), dtype=np.uint8)
        cv2.imwrite(str(folder / f"{number}.jpg"), pixels)
    return folder


@pytest.fixture(scope="module")
def measured(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Rates:
    return measure.measure_rates(_config(photos), tmp_path_factory.mktemp("measured") / "in", STARTS)


def _config(photos: Path, **changed: object) -> MeasureConfig:
    fields = {"device": "cpu", "backbones": ["resnet10_narrow"], "expansions": [1], "image_size": 32, "batch_size": 4}
    return MeasureConfig.model_validate({**fields, "images": str(photos), **changed})


def test_every_kind_of_work_takes_time_of_cores_alone(measured: Rates) -> None:
    network = measured.network("resnet10_narrow")
    works = [network.training["moco"].step, network.forward, *network.iteration.values()]
    assert all(work.core_seconds > 0 for work in works)
    assert all(work.gpu_seconds == 0 for work in works)
    for name in ("decoding", "views", "reading", "storing", "row_seconds", "shown_seconds"):
        assert getattr(measured, name) > 0, name
    assert measured.crf > measured.storing / 10  # the stage leaves the CRF out where a map is empty
    assert network.training["moco"].start_seconds > 0
    assert measured.linear.seconds + measured.linear.seconds_per_product > 0


def test_the_rates_say_what_they_are_of(measured: Rates) -> None:
    assert (measured.device, measured.num_gpus, measured.image_size) == ("cpu", 0, 32)
    assert measured.picture_bytes == 40 * 60 * 3
    assert measured.start_seconds == STARTS
    assert list(measured.network("resnet10_narrow").iteration) == [1]
    assert measured.source.startswith("as measured on ")


def test_threads_are_left_as_they_were(measured: Rates) -> None:
    assert torch.get_num_threads() == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="device = cuda: is not available"):
        measure.measure_rates(_config(photos, device="cuda"), tmp_path / "in", STARTS)


def test_the_batch_of_a_device_is_written_out() -> None:
    assert [MeasureConfig.model_validate({"device": device}).batch_size for device in ("cpu", "cuda")] == [32, 256]
