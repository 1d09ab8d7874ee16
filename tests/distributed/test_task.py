from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from objectaware.distributed.task import NoProgressError, run_task, run_tasks
from objectaware.errors import InputError


def _total(values: np.ndarray, factor: int) -> float:
    return float(values.sum()) * factor


def _refuse() -> None:
    raise InputError("temperature", -1, "must be positive", "Give 0.2.")


def _wait_for_ever(marker: Path) -> None:
    marker.touch()
    threading.Event().wait()


def _die_once(marker: Path) -> str:
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


def test_a_tasks_process_waits_for_no_import_of_the_drivers_alone() -> None:
    """MLflow, Ray Data and their pandas take as long to import as PyTorch does; the driver alone uses them."""
    modules = ["distributed.localize_steps", "stages.features", "stages.linear", "stages.localization"]
    imports = ", ".join(f"objectaware.{module}" for module in modules)
    code = f"import sys, {imports}; print(sorted({{'mlflow', 'pandas', 'ray.data'}} & sys.modules.keys()))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


def test_tasks_that_hang_are_ended(ray_session: None, tmp_path: Path) -> None:
    with pytest.raises(NoProgressError, match=r"none of 1 running tasks ended within 0\.5 s"):
        run_tasks(_wait_for_ever, [(tmp_path / "pid",)], on_result=lambda result: None, no_progress_seconds=0.5)


def test_the_result_comes_back(ray_session: None) -> None:
    assert run_task(_total, np.arange(5), 3) == 30


def _number_running(folder: Path, number: int) -> int:
    """Enters a room in which every task waits until two are there, or for a while where there is one."""
    (folder / str(number)).touch()
    until = time.monotonic() + 0.3
    while len(list(folder.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    seen = len(list(folder.iterdir()))
    (folder / str(number)).unlink()
    return seen


def test_results_come_in_order_from_no_more_tasks_at_once_than_said(ray_session: None, tmp_path: Path) -> None:
    assert run_tasks(_number_running, [(tmp_path, number) for number in range(3)], at_once=1) == [1, 1, 1]


def test_each_result_is_told_as_it_comes(ray_session: None) -> None:
    told: list[float] = []
    given = [(np.arange(number), 2) for number in range(4)]
    assert run_tasks(_total, given, at_once=2, on_result=told.append) == [0, 0, 2, 6]
    assert sorted(told) == [0, 0, 2, 6]


def test_an_error_ends_the_wait_for_the_results(ray_session: None) -> None:
    told: list[str] = []
    with pytest.raises(InputError, match="temperature"):
        run_tasks(_refuse, [(), ()], at_once=1, on_result=told.append)
    assert told == []


def _wait_for(folder: Path) -> None:
    """Says that it runs and waits to be ended."""
    (folder / "runs").touch()
    threading.Event().wait()


def _refuse_once_the_other_runs(folder: Path) -> None:
    while not (folder / "runs").exists():
        time.sleep(0.01)
    _refuse()


def _first_of(folder: Path, number: int) -> None:
    (_refuse_once_the_other_runs, _wait_for)[number](folder)


def test_an_error_cancels_tasks_that_run_and_none_that_has_ended(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray aborts the process that cancels a task in the moment in which it ends, about once in a hundred times."""
    cancelled: list[ray.ObjectRef[Any]] = []
    cancel = ray.cancel

    def note(reference: ray.ObjectRef[Any], *, force: bool) -> None:
        cancelled.append(reference)
        cancel(reference, force=force)

    monkeypatch.setattr(ray, "cancel", note)
    with pytest.raises(InputError):
        run_tasks(_refuse, [(), ()], at_once=1, on_result=lambda result: None)
    assert cancelled == []
    with pytest.raises(InputError):
        run_tasks(_first_of, [(tmp_path, 0), (tmp_path, 1)], on_result=lambda result: None)
    assert len(cancelled) == 1


def test_an_error_comes_back_as_itself(ray_session: None) -> None:
    with pytest.raises(InputError) as refusal:
        run_task(_refuse)
    assert type(refusal.value) is InputError
    assert str(refusal.value) == "temperature = -1: must be positive. Give 0.2."
    notes = "".join(refusal.value.__notes__)
    assert "_refuse" in notes
    assert "\x1b" not in notes


def test_a_lost_process_is_replaced(ray_session: None, tmp_path: Path) -> None:
    assert run_task(_die_once, tmp_path / "died") == "survived"


def test_more_cpus_than_there_are_is_refused(ray_session: None) -> None:
    with pytest.raises(InputError, match="1 task × 100000 = 100000 CPUs"):
        run_task(_refuse, num_cpus=100_000)
