"""Fixtures of all tests: a clean environment, the shared folder, and one Ray for the whole session."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from chaos_report import ChaosReport
from objectaware.process import relax_collector
from ports import free_port

relax_collector()
# Before any test module imports a numerical library, or Ray: they read it once.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["RAY_DASHBOARD_STARTUP_TIMEOUT_S"] = "300"
# Nobody looks at the load that Ray's dashboards show; its Rays measured it every five seconds for half an hour.
os.environ["REPORTER_UPDATE_INTERVAL_MS"] = "60000"
# It listed the logs of hundreds of workers ten times per second, a twentieth of a processor for each Ray.
os.environ["RAY_LOG_MONITOR_MANY_FILES_THRESHOLD"] = "0"
# The user's services are none of the tests'. Later, what our own modules set when they are imported would go with it.
for _name in list(os.environ):
    if _name.startswith("MLFLOW_") or _name in ("RAY_ADDRESS", "OBJECTAWARE_STORAGE"):
        del os.environ[_name]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos-report", type=Path, help="table of what was seen of the faults marked `chaos`")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--chaos-report")
    if path is not None:
        config.pluginmanager.register(ChaosReport(path.absolute()))


@pytest.hookimpl(trylast=True)  # once `-m` has chosen
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that may take longest by their limits, or one process would end alone with a long one."""
    seconds: Counter[Path] = Counter()
    for item in items:
        limit = item.get_closest_marker("timeout")
        seconds[item.path] += 120 if limit is None else limit.args[0]
    items.sort(key=lambda item: -seconds[item.path])


@pytest.hookimpl(tryfirst=True)  # before all fixtures
def pytest_runtest_setup() -> None:
    """Compute with one thread, since sums depend on the number. A stage of an earlier test may have set another."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
    database: Any = sys.modules.get("mlflow.store.db.utils")
    if database is not None and database._initialize_tables.__module__ == database.__name__:
        _copy_the_first_store(database)


_first_store: sqlite3.Connection | None = None


def _copy_the_first_store(database: Any) -> None:
    """Make each further MLflow store in SQLite a copy of this process's first one.

    MLflow runs all its migrations for a new store, two seconds of a processor, and hundreds of tests need one. Stores
    that commands make in processes of their own are not copies.
    """
    make = database._initialize_tables

    def copy(engine: Any) -> None:
        global _first_store
        if engine.dialect.name != "sqlite":
            make(engine)
        elif _first_store is not None:
            with closing(engine.raw_connection()) as own:
                _first_store.backup(own.driver_connection)
        else:
            make(engine)
            _first_store = sqlite3.connect(":memory:", check_same_thread=False)
            with closing(engine.raw_connection()) as own:
                own.driver_connection.backup(_first_store)

    database._initialize_tables = copy


@pytest.fixture(scope="session", autouse=True)
def clean_environment() -> Iterator[Path]:
    """A home of their own for the tests, and no address of the user's services; gives a short temporary folder."""
    # Ray's sockets lie in it, whose paths must stay below 108 bytes; pytest's own folders are too long for that.
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="oa"))
    with pytest.MonkeyPatch.context() as patch:
        home = folder / "home"
        home.mkdir()
        patch.setenv("HOME", str(home))
        patch.setenv("RAY_TMPDIR", str(folder))
        # Ray would kill workers when other people's processes fill the machine.
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")
        yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def closed_port() -> int:
    """A port of loopback on which nobody answers."""
    return free_port()


@pytest.fixture
def shared_dir() -> Path:
    """The project's shared folder, with data that is not in the repository."""
    folder = Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"the shared folder {folder} is not here")
    return folder


@pytest.fixture(scope="session")
def ray_session(clean_environment: Path) -> Iterator[None]:
    """One local Ray for all tests that need one."""
    from objectaware.distributed.cluster import ray_cluster

    with ray_cluster(min_cpus=8):
        yield


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of an untrained network."""
    import torch

    from objectaware.methods.checkpoint import save_checkpoint
    from objectaware.methods.moco import MoCo

    folder = tmp_path_factory.mktemp("checkpoint")
    torch.manual_seed(0)
    method = MoCo("resnet10_narrow", queue_size=8)
    save_checkpoint(folder, method, {"backbone": "resnet10_narrow"}, {"optimizer": {}, "next_epoch": 0})
    return folder


@pytest.fixture(scope="session")
def tiny_detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint as fine-tuning writes it, of an untrained network."""
    from objectaware.detection.network import MaskRCNN
    from objectaware.methods.backbones import build_backbone
    from objectaware.methods.checkpoint import save_checkpoint

    folder = tmp_path_factory.mktemp("detector")
    network = MaskRCNN(build_backbone("resnet10_narrow"), 2)
    about = {"backbone": "resnet10_narrow", "category_names": ["cat", "zebra"]}
    save_checkpoint(folder, network, about, {"optimizer": {}, "iteration": 0})
    return folder


@pytest.fixture(scope="session")
def tiny_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 44 small pictures, each a disc on noise, of differing sizes."""
    import cv2
    import numpy as np

    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    for number in range(44):
        height, width = 40 + number % 5, 48
        picture = random.integers(0, 90, (height, width, 3), dtype=np.uint8)
        center = (int(random.integers(14, 34)), int(random.integers(14, 26)))
        cv2.circle(picture, center, 9, random.integers(120, 255, 3).tolist(), thickness=-1)
        cv2.imwrite(str(folder / f"picture {number:02d}.png"), picture)
    return folder
