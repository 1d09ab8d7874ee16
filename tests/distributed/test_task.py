from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from objectaware.distributed.task import run_task
from objectaware.errors import InputError


def _total(values: np.ndarray, factor: int) -> float:
    return float(values.sum()) * factor


def _refuse() -> None:
    raise InputError("temperature", -1, "must be positive", "Give 0.2.")


def _die_once(marker: Path) -> str:
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


def test_the_result_comes_back(ray_session: None) -> None:
    assert run_task(_total, np.arange(5), 3) == 30


def test_an_error_comes_back_as_itself(ray_session: None) -> None:
    with pytest.raises(InputError) as refusal:
        run_task(_refuse)
    assert type(refusal.value) is InputError
    assert str(refusal.value) == "temperature = -1: must be positive. Give 0.2."
    assert "_refuse" in "".join(refusal.value.__notes__)


def test_a_lost_process_is_replaced(ray_session: None, tmp_path: Path) -> None:
    assert run_task(_die_once, tmp_path / "died") == "survived"


def test_more_cpus_than_there_are_is_refused(ray_session: None) -> None:
    with pytest.raises(InputError, match="1 task × 100000 = 100000 CPUs"):
        run_task(_refuse, num_cpus=100_000)
