from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from objectaware.process import Background, relax_collector, restore_collector


class _Worker(Background):
    def __init__(self) -> None:
        super().__init__("worker")
        self.began, self.ended = threading.Event(), False

    def _run(self) -> None:
        self.began.set()
        self._stop.wait()
        self.ended = True


def test_it_works_beside_the_block_and_has_ended_with_it() -> None:
    with _Worker() as worker:
        assert worker.began.wait(10)
        assert not worker.ended
    assert worker.ended


def test_what_the_block_raises_goes_on_once_it_has_ended() -> None:
    worker = _Worker()
    with pytest.raises(KeyError), worker:
        raise KeyError
    assert worker.ended


@pytest.fixture
def collecting_as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("collecting_as_before")
def test_the_collector_looks_less_often_until_work_begins_and_then_only_at_what_is_new() -> None:
    gc.set_threshold(700, 10, 10)
    relax_collector()
    assert gc.get_threshold()[0] > 10_000
    frozen = gc.get_freeze_count()
    restore_collector()
    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() > frozen


@pytest.mark.usefixtures("collecting_as_before")
def test_thresholds_that_others_have_set_stay() -> None:
    gc.set_threshold(123, 4, 5)
    frozen = gc.get_freeze_count()
    relax_collector()
    restore_collector()
    assert gc.get_threshold() == (123, 4, 5)
    assert gc.get_freeze_count() == frozen
