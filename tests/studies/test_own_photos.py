"""The demo on a user's own photos: settings by the folder's size, the time that it announces, and a whole run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from objectaware.config import DataConfig
from objectaware.errors import InputError
from objectaware.planning.model import NetworkRates, Rates, TrainingRates, Work
from objectaware.studies.own_photos import (
    expectation,
    expected_times,
    open_photos,
    own_photos_stages,
    with_decoding,
)


def _write_photos(folder: Path, number: int) -> Path:
    folder.mkdir()
    random = np.random.default_rng(0)
    for index in range(number):
        Image.fromarray(random.integers(0, 255, (40, 60, 3), dtype=np.uint8)).save(folder / f"{index:03}.jpg")
    return folder


def _rates() -> Rates:
    """Rates of one core: a photo's step takes 10 ms, and so does an iteration of ContraCAM at 96 pixels."""
    work = Work(core_seconds=0.01)
    network = NetworkRates(
        backbone="resnet10_narrow",
        num_features=8,
        training={"moco": TrainingRates(step=work)},
        forward=work,
        iteration={2: work},
    )
    starts = {"pretrain": 0.0, "localize": 0.0, "linear": 0.0}
    fields = {"source": "stated", "device": "cpu", "num_cores": 1, "num_gpus": 0, "image_size": 96}
    return Rates.model_validate({**fields, "picture_bytes": 1e3, "networks": (network,), "start_seconds": starts})


@pytest.mark.parametrize(
    ("num_photos", "batch_size", "queue_size", "num_epochs"),
    [(10_000, 64, 2048, 24), (4_000, 64, 960, 60), (500, 64, 64, 200), (24, 24, 24, 200), (100_000, 64, 2048, 24)],
)
def test_the_settings_follow_from_the_number_of_photos(
    num_photos: int, batch_size: int, queue_size: int, num_epochs: int
) -> None:
    training, localization = own_photos_stages("photos", num_photos, None, checkpoint="trained")
    assert (training.batch_size, training.num_epochs) == (batch_size, num_epochs)
    assert training.method.model_dump()["queue_size"] == queue_size
    assert (training.image_size, localization.image_size) == (96, 192)
    assert localization.localizer.model_dump()["temperature"] == 1
    assert own_photos_stages("photos", num_photos, 3, checkpoint="trained")[0].num_epochs == 3


def test_the_time_is_that_of_the_rates() -> None:
    training, localization = own_photos_stages("photos", 1000, 5, checkpoint="trained")
    trained, found = expected_times(_rates(), 1000, training, localization)
    assert trained.seconds == pytest.approx(1000 * 5 * 0.01)
    # Two iterations, on four times the pixels.
    assert found.seconds == pytest.approx(1000 * 2 * 4 * 0.01)
    (line,) = expectation(1000, 5, (trained, found))
    assert line.startswith("1,000 photos: about 50 s for 5 epochs of pretraining, then about 80 s")


def test_few_photos_are_announced() -> None:
    training, localization = own_photos_stages("photos", 499, 5, checkpoint="trained")
    lines = expectation(499, 5, expected_times(_rates(), 499, training, localization))
    assert len(lines) == 2
    assert "Fewer than 500 photos" in lines[1]


def test_reading_is_timed_on_the_photos_that_can_be_read(tmp_path: Path) -> None:
    folder = _write_photos(tmp_path / "photos", 6)
    (folder / "000.jpg").write_bytes(b"broken")
    rates = with_decoding(_rates(), DataConfig(root=str(folder)).open())
    assert rates.decoding > 0
    assert rates.picture_bytes == 40 * 60 * 3


def test_a_handful_of_photos_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds 3 photos, too few to compare"):
        open_photos(str(_write_photos(tmp_path / "photos", 3)))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_folder_of_photos_becomes_a_gallery(tmp_path: Path) -> None:
    _write_photos(tmp_path / "photos", 24)
    command = [sys.executable, "-m", "objectaware.cli", "demo", "--photos", "photos", "--num_epochs", "1"]
    done = subprocess.run(
        [*command, "--json", "out.json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    values = json.loads((tmp_path / "out.json").read_text())
    assert values["num_ok"] == 24
    assert Path(values["gallery"]).read_text().count("<figure ") == 24
    announced, began = done.stdout.index("24 photos: about "), done.stdout.index(" for 1 epoch of pretraining")
    assert announced < began < done.stdout.index("pretrain moco none seed 0 …")
    assert f"gallery, to be opened in a browser: {values['gallery']}" in done.stdout
    # The next run reads the rates from the storage.
    assert len(list((tmp_path / "runs").glob("rates-*.json"))) == 1
