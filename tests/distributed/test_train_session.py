from __future__ import annotations

import pickle
from typing import Any

import pytest
from ray.train import Checkpoint

from objectaware.distributed.records import RecordPump
from objectaware.distributed.train_session import EpochRecorder, FinalError, checkpoint_name
from objectaware.errors import InputError


def _report(recorder: EpochRecorder, epoch: int, *, saved: bool) -> None:
    checkpoint = Checkpoint("/nowhere") if saved else None
    recorder.after_report(None, [{"epoch": epoch, "loss": 1.0}, {"epoch": epoch, "loss": 2.0}], checkpoint)


def test_an_epoch_is_recorded_once_it_is_saved(ray_session: None) -> None:
    received: list[dict[str, Any]] = []
    with RecordPump(received.append) as pump:
        recorder = EpochRecorder(pump.sink)
        _report(recorder, 0, saved=False)
        _report(recorder, 1, saved=True)
        _report(recorder, 2, saved=False)
    assert received == [{"kind": "epoch", "epoch": 0, "loss": 1.0}, {"kind": "epoch", "epoch": 1, "loss": 1.0}]


def test_epochs_that_a_failure_undoes_are_recorded_when_computed_again(ray_session: None) -> None:
    received: list[dict[str, Any]] = []
    with RecordPump(received.append) as pump:
        recorder = EpochRecorder(pump.sink)
        _report(recorder, 0, saved=True)
        _report(recorder, 1, saved=False)
        recorder.after_exception(None, {0: RuntimeError("connection closed by peer")})
        _report(recorder, 1, saved=False)
        _report(recorder, 2, saved=True)
    assert [record["epoch"] for record in received] == [0, 1, 2]


def test_what_no_retry_would_mend_stops_the_controller() -> None:
    error = FinalError(InputError("batch_size", 8, "is too large", "Lower it."))
    failures = {0: RuntimeError("connection closed by peer"), 1: error}
    with pytest.raises(FinalError) as stop:
        EpochRecorder(None).after_exception(None, failures)
    assert stop.value.error is error.error


def test_a_final_error_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(FinalError(InputError("batch_size", 8, "is too large", "Lower it."))))
    assert str(error.error) == "batch_size = 8: is too large. Lower it."


def test_checkpoint_names_sort_as_their_epochs() -> None:
    assert checkpoint_name(7) == "epoch_0007"
    assert sorted(map(checkpoint_name, (100, 9, 10))) == ["epoch_0009", "epoch_0010", "epoch_0100"]
