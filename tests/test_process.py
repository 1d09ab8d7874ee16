from __future__ import annotations

import threading

import pytest

from objectaware.process import Background


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
