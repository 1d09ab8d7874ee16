"""What the MLflow UI shows of a study with a localization, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import pytest

from browser import Browser, Picture, browser
from contexts import make_context
from mlflow_server import mlflow_server
from objectaware.config import DataConfig, LocalizeConfig
from objectaware.stages.localize import localize
from objectaware.studies.engine import open_study
from stages_in_process import work_in_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MAGENTA = (255, 0, 255)  # no colour of the UI's


@dataclass(frozen=True)
class Pages:
    """Addresses of the runs' pages."""

    parent: str
    localization: str


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Iterator[Pages]:
    """A study of one localization of magenta photos, on a server."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "photos").mkdir()
    for number in range(4):
        photo = np.full((64, 64, 3), MAGENTA, dtype=np.uint8)
        cv2.circle(photo, (20 + 8 * number, 32), 6, (0, 0, 0), thickness=-1)
        cv2.imwrite(str(folder / "photos" / f"{number}.png"), photo)
    config = LocalizeConfig(
        data=DataConfig(root=str(folder / "photos")), checkpoint=str(tiny_checkpoint), image_size=32
    )
    runs = folder / "runs"
    context = make_context(runs)
    with pytest.MonkeyPatch.context() as patch:
        work_in_process(patch)
        with open_study(context, "sweep", name="the study", dataset="photos", config={}) as (context, parent):
            result = localize(context, config, title="the localization")
            parent.log_table(
                "comparison", [{"policy": "none", "accuracy": 12.5}, {"policy": "mixup", "accuracy": 87.5}]
            )
    experiment = context.services.tracking.server.experiment_id(context.services.tracking.experiment)
    with mlflow_server(runs) as address:
        yield Pages(*(f"{address}/#/experiments/{experiment}/runs/{run}" for run in (parent.run_id, result.run_id)))


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


def test_the_parents_page_names_its_child(pages: Pages, window: Browser) -> None:
    expected = ("the study", "the localization", "Finished")
    page = window.text_when(pages.parent, lambda text: all(word in text for word in expected))
    assert [word for word in expected if word not in page] == []


def test_the_parents_table_is_shown_as_a_table(pages: Pages, window: Browser) -> None:
    expected = (">policy<", ">accuracy<", ">mixup<", ">87.5<")
    address = f"{pages.parent}/artifacts/tables/comparison.json"
    page = window.text_when(address, lambda text: all(cell in text for cell in expected))
    assert [cell for cell in expected if cell not in page] == []


@pytest.mark.parametrize("name", ["panel.png", "gallery.html"])
def test_the_photos_are_seen(pages: Pages, window: Browser, name: str) -> None:
    address = f"{pages.localization}/artifacts/{name}"
    assert _is_magenta(window.picture_when(address, _is_magenta))


def _is_magenta(picture: Picture) -> bool:
    """Whether a fiftieth of the window is; JPEG and scaling change the colour a little."""
    distance = np.abs(picture.astype(int) - MAGENTA).max(axis=2)
    return bool((distance < 40).mean() > 0.02)
