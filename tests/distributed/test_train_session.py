from __future__ import annotations

import pickle
from typing import Any

import pytest
from ray.train import Checkpoint

from objectaware.distributed.records import RecordPump
from objectaware.distributed.train_session import EpochRecorder, FinalError, checkpoint_name
from objectaware.errors import InputError


def test_only_what_is_saved_is_recorded(ray_session: None) -> None:
    received: list[dict[str, Any]] = []
    with RecordPump(received.append) as pump:
        recorder = EpochRecorder(pump.sink)
        recorder.after_report(None, [{"epoch": 0, "loss": 1.0}, {"epoch": 0, "loss": 9.0}], None)
        saving = {"epoch": 1, "loss": 0.5, "epochs_since_the_last_checkpoint": [{"epoch": 0, "loss": 1.0}]}
        recorder.after_report(None, [saving, {"epoch": 1, "loss": 9.0}], Checkpoint("/nowhere"))
        recorder.after_report(None, [{"epoch": 2, "loss": 0.1}, {"epoch": 2, "loss": 9.0}], None)
    assert received == [
        {"kind": "epoch", "epoch": 0, "loss": 1.0},
        {"kind": "epoch", "epoch": 1, "loss": 0.5},
    ]


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
