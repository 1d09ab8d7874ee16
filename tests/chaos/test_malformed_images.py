"""A folder of a hundred files that are hardly photos, through localization and training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from malformed import write_corpus
from objectaware.config import DataConfig, LocalizeConfig, LocalizeExecution
from objectaware.data.dataset import TrainingImages
from objectaware.data.folder import ImageFolder, Manifest
from objectaware.data.storage import Storage
from objectaware.distributed.localize import localize
from objectaware.localize.contracam import ContraCAM
from objectaware.localize.mask_store import read_rows

Corpus = tuple[Path, set[str], set[str]]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpus") / "photos"
    return folder, *write_corpus(folder)


@pytest.mark.chaos(fault="a hundred malformed images, read", holds="each is a picture or a reason, in time")
@pytest.mark.timeout(60)
def test_every_file_is_a_picture_or_a_stand_in(corpus: Corpus) -> None:
    folder, good, bad = corpus
    images = ImageFolder.scan(folder)
    assert set(images.image_ids) == good | bad
    training = TrainingImages(images, max_bytes=0)
    for index in range(len(training)):
        pixels = training.read(index)
        assert pixels.dtype == np.uint8
        assert pixels.shape[2] == 3
    assert set(training.unreadable) == bad
    assert not (folder / "escaped").exists()


@pytest.mark.slow
@pytest.mark.chaos(fault="a hundred malformed images, localized", holds="a row for each, with a mask or the reason")
@pytest.mark.timeout(600)
def test_localization_has_a_row_for_every_file(
    corpus: Corpus, ray_session: None, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    folder, good, bad = corpus
    config = LocalizeConfig(
        data=DataConfig(root=str(folder)),
        checkpoint=str(tiny_checkpoint),
        image_size=32,
        localizer=ContraCAM(num_iterations=1),
        group_size=16,
        execution=LocalizeExecution(num_compute_threads=1, num_crf_actors=1),
    )
    store = Storage.from_uri(tmp_path / "masks")
    summary = localize(config, manifest=Manifest.of(ImageFolder.scan(folder)), store=store, on_record=lambda _: None)
    assert (summary.num_images, summary.num_ok, summary.num_failed) == (101, len(good), len(bad))
    rows = {row.image_id: row for row in read_rows(store)}
    assert {name for name, row in rows.items() if row.status == "ok"} == good
    assert all(rows[name].error for name in bad)
