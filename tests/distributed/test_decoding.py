"""Decoders on the cluster give a worker what it would have loaded itself."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from actors import actors
from objectaware.config import DataConfig, PretrainConfig, PretrainExecution
from objectaware.data.folder import ImageFolder
from objectaware.data.pack import pack_images
from objectaware.data.storage import Storage
from objectaware.distributed.decoding import DecodedViews, Decoder, stream_places
from objectaware.distributed.room import require_possible
from objectaware.distributed.train import training_needs
from objectaware.distributed.train_session import RaySession
from objectaware.errors import InputError
from objectaware.methods.checkpoint import load_state
from objectaware.training.inputs import build_loader, open_inputs, worker_share
from objectaware.training.pretraining import run_pretraining
from objectaware.training.session import LocalSession, StoppedError
from tiny_training import tiny_training

slow = pytest.mark.slow


@pytest.fixture(scope="module")
def pack(tiny_images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pictures in several shards, one of which cannot be read."""
    folder = tmp_path_factory.mktemp("packed")
    for path in tiny_images.iterdir():
        (folder / "photos").mkdir(exist_ok=True)
        (folder / "photos" / path.name).write_bytes(path.read_bytes() if "03" not in path.name else b"no picture")
    pack_images(ImageFolder.scan(folder / "photos"), Storage.from_uri(folder / "pack"), source={}, shard_bytes=60_000)
    return folder / "pack"


def _config(pack: Path, **execution: Any) -> PretrainConfig:
    data = DataConfig(root=str(pack), layout="shards", shuffle_window=2)
    return tiny_training(data, num_epochs=3, cache_mib=0, **execution)


def test_a_decoder_gives_a_workers_columns_of_the_plan(pack: Path) -> None:
    """Step by step and to the bit what the worker would load, for each of two workers."""
    config = _config(pack)
    inputs = open_inputs(config)
    loader = build_loader(config, inputs.images, pack)
    for rank in range(2):
        decoder = Decoder(config, rank, 2)
        share = worker_share(inputs.batches(1), rank, 2)
        for step, batch in enumerate(loader.epoch(1, list(share))):
            columns = decoder({"epoch": np.array([1]), "step": np.array([step])})
            assert columns["index"].tolist() == share[step].tolist()
            for view in range(2):
                assert np.array_equal(columns[f"pixels_{view}"].transpose(0, 3, 1, 2), batch.views[view].numpy())
            assert np.array_equal(columns["mix_draws"], batch.mix_draws.numpy())
            assert np.array_equal(columns["unreadable"], batch.unreadable)


def test_a_stream_serves_what_is_left_of_an_epoch_and_those_after_it_up_to_some_thousand_steps() -> None:
    assert stream_places(1, 2, num_epochs=3, num_steps=4) == [(1, 2), (1, 3), (2, 0), (2, 1), (2, 2), (2, 3)]
    long = stream_places(0, 5000, num_epochs=9, num_steps=5004)
    assert long == [(0, step) for step in range(5000, 5004)]
    short = stream_places(0, 0, num_epochs=800, num_steps=100)
    assert (len(short), short[-1]) == (4000, (39, 99))


def test_who_decodes_decides_which_processes_run(ray_session: None) -> None:
    cluster = PretrainExecution(num_workers=2, use_gpu=True, num_loader_threads=6, decode_on="cluster", num_decoders=3)
    workers, decoders = training_needs(cluster)
    assert (workers.count, workers.num_cpus, workers.num_gpus) == (2, 1, 1)
    assert (decoders.count, decoders.num_cpus) == (6, 6)
    on_cpus = cluster.model_copy(update={"use_gpu": False, "num_loader_threads": 600})
    with pytest.raises(
        InputError, match=r"2 num_workers × 1 \+ 6 decoders \(num_workers × num_decoders\) × 600 = 3602"
    ):
        require_possible("pretrain", training_needs(on_cpus))
    with pytest.raises(ValueError, match="num_decoders = 2 has no meaning"):
        PretrainExecution(num_decoders=2)


class StoppedSession(LocalSession):
    """Takes its views as a worker of Ray does, and is asked to end at a step, counted from 1."""

    view_source = RaySession.view_source
    _watch = SimpleNamespace(paused=nullcontext)

    def __init__(self, folder: Path, stop_at: int = -1) -> None:
        super().__init__(folder)
        self._steps_left = stop_at

    def should_stop(self) -> bool:
        self._steps_left -= 1
        return self._steps_left == 0


@slow
@pytest.mark.timeout(900)
def test_training_on_decoded_views_is_training_on_ones_own_to_the_bit(
    ray_session: None, pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, and stopped inside an epoch and resumed, where nothing before the stop is decoded again."""
    run_pretraining(_config(pack), LocalSession(tmp_path / "own"))
    expected = load_state(tmp_path / "own" / "checkpoint")
    assert expected["unreadable"].tolist() == [open_inputs(_config(pack)).images.image_ids.index("picture 03.png")]

    asked = []
    decoded = DecodedViews._decoded
    monkeypatch.setattr(
        DecodedViews, "_decoded", lambda self, *given: asked.append(given[0][0]) or decoded(self, *given)
    )
    config = _config(pack, decode_on="cluster", num_decoders=2)
    with pytest.raises(StoppedError):
        run_pretraining(config, StoppedSession(tmp_path / "decoded", stop_at=3))
    run_pretraining(config, StoppedSession(tmp_path / "decoded"))
    assert asked == [(0, 0), (1, 1)]  # 44 images are two steps
    found = load_state(tmp_path / "decoded" / "checkpoint")
    assert found["method"].keys() == expected["method"].keys()
    assert all(torch.equal(value, found["method"][name]) for name, value in expected["method"].items())
    assert torch.equal(found["unreadable"], expected["unreadable"])
    assert not actors(("class_name", "=", "MapWorker(MapBatches(Decoder))"), ("state", "=", "ALIVE"))


@slow
@pytest.mark.timeout(900)
def test_what_a_decoder_refuses_reaches_the_worker_as_it_is(ray_session: None, tmp_path: Path) -> None:
    for number in range(16):
        (tmp_path / f"{number}.png").write_bytes(b"not a picture")
    config = PretrainConfig.model_validate(
        {**_config(tmp_path, decode_on="cluster").model_dump(), "data": DataConfig(root=str(tmp_path))}
    )
    with pytest.raises(InputError, match="hold none that can be read") as refusal:
        run_pretraining(config, StoppedSession(tmp_path / "run"))
    assert type(refusal.value) is InputError
