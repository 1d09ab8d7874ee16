from __future__ import annotations

from typing import Any

import pytest
import ray

from objectaware.distributed.train_session import DriverLine, RecordPump


def test_every_record_arrives_in_order(ray_session: None) -> None:
    received: list[dict[str, Any]] = []
    with RecordPump(received.append) as pump:
        ray.get([pump.sink.push.remote({"kind": "epoch", "epoch": epoch}) for epoch in range(50)])
    assert [record["epoch"] for record in received] == list(range(50))


def test_a_failing_receiver_is_reported_and_later_records_still_reach_it(ray_session: None) -> None:
    received: list[int] = []

    def receive(record: dict[str, Any]) -> None:
        received.append(record["epoch"])
        if record["epoch"] < 2:
            raise KeyError(f"epoch {record['epoch']}")

    with pytest.raises(KeyError, match="epoch 0"), RecordPump(receive) as pump:
        ray.get([pump.sink.push.remote({"kind": "epoch", "epoch": epoch}) for epoch in range(4)])
    assert received == [0, 1, 2, 3]


def test_the_bodys_own_error_comes_first(ray_session: None) -> None:
    def receive(record: dict[str, Any]) -> None:
        raise KeyError("receiver")

    def body() -> None:
        with RecordPump(receive) as pump:
            ray.get(pump.sink.push.remote({"kind": "epoch"}))
            raise RuntimeError("body")

    with pytest.raises(RuntimeError, match="body"):
        body()


def test_a_worker_hears_the_drivers_wish_also_where_a_record_follows_before_it_asks(ray_session: None) -> None:
    """Steps may be slower than records: each is followed by the next one before anybody asks."""
    with RecordPump(lambda record: None) as pump:
        line = DriverLine(pump.sink)
        line.push({"kind": "progress"})
        ray.get(pump.sink.stop.remote())
        assert not line.shall_stop()
        line.push({"kind": "progress"})
        ray.get(pump.sink.push.remote({"kind": "progress"}))  # by now the one before has been answered
        line.push({"kind": "progress"})
        assert line.shall_stop()


def test_the_last_workers_word_on_being_stuck_counts(ray_session: None) -> None:
    stuck = {"kind": "stuck", "rank": 1, "seconds": 60.0, "place": "in read"}
    with RecordPump(lambda record: None) as pump:
        assert pump.stuck() is None
        for leave in (pump.sink.begin.remote, lambda: pump.sink.push.remote({"kind": "progress"})):
            ray.get(pump.sink.push.remote(stuck))
            assert pump.stuck() == stuck
            ray.get(leave())
            assert pump.stuck() is None
