"""How busy machines are: this one, others that Ray reaches, and their GPUs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from ray.exceptions import NodeDiedError
from ray.util.state.exception import RayStateApiException

from objectaware.distributed import cluster, machines
from objectaware.distributed.machines import MachineWatch, parsed_gpus, reading, working_on

NAMES = {"cpu_utilization_percentage", "system_memory_usage_megabytes", "system_memory_usage_percentage"}


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)


def test_a_reading_has_mlflows_names_and_units() -> None:
    found = reading(0.05)
    assert set(found) == NAMES
    assert 0 <= found["cpu_utilization_percentage"] <= 100
    assert 0 < found["system_memory_usage_megabytes"] * 1e6 < psutil.virtual_memory().total
    share = found["system_memory_usage_megabytes"] * 1e8 / psutil.virtual_memory().total
    assert found["system_memory_usage_percentage"] == pytest.approx(share)


def test_gpus_are_told_apart_and_what_one_does_not_tell_is_left_out() -> None:
    lines = "0, 97, 81234, 612.34\n1, [N/A], 1000, [Not Supported]\n"
    assert parsed_gpus(lines) == pytest.approx(
        {
            "gpu_0_utilization_percentage": 97,
            "gpu_0_memory_usage_megabytes": 81234 * 1.048576,
            "gpu_0_power_usage_watts": 612.34,
            "gpu_1_memory_usage_megabytes": 1048.576,
        }
    )


_LOST, _SILENT = 7, 8


class _Cluster:
    """The few of Ray's functions that the watch takes: a task is done when it is asked for."""

    def __init__(self, *addresses: str) -> None:
        self.asked: list[int] = []
        self.cancelled: list[int] = []
        self._nodes = [
            {"NodeID": f"{number:056x}", "NodeManagerAddress": address, "Alive": True}
            for number, address in enumerate(addresses)
        ]

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [*self._nodes, {"NodeID": "gone", "NodeManagerAddress": "10.0.0.9", "Alive": False}]

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(get_node_id=lambda: f"{0:056x}")

    def remote(self, function: Any) -> SimpleNamespace:
        def options(*, scheduling_strategy: Any, **_: object) -> SimpleNamespace:
            return SimpleNamespace(remote=lambda seconds: scheduling_strategy.node_id)

        return SimpleNamespace(options=options)

    def wait(self, references: list[str], *, timeout: float, fetch_local: bool = True) -> tuple[list[str], list[str]]:
        done = [reference for reference in references if int(reference) != _SILENT][:1]
        return done, [reference for reference in references if reference not in done]

    def get(self, reference: str) -> dict[str, float]:
        self.asked.append(int(reference))
        if int(reference) == _LOST:
            raise NodeDiedError("gone a moment ago")
        return {"cpu_utilization_percentage": 10.0 * int(reference)}

    def cancel(self, reference: str, *, force: bool) -> None:
        self.cancelled.append(int(reference))


def _replace_ray(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> _Cluster:
    replaced = _Cluster(*addresses)
    for module in (cluster, machines):
        monkeypatch.setattr(module, "ray", replaced)
    return replaced


def _nodes(*numbers: int) -> list[str]:
    return [f"{number:056x}" for number in numbers]


def _one_sample(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, float]:
    monkeypatch.setattr(machines, "_SECONDS_TO_FIRST", 0.01)
    samples: list[Mapping[str, float]] = []
    has_one = threading.Event()

    def take(sample: Mapping[str, float]) -> None:
        samples.append(sample)
        has_one.set()

    with MachineWatch(take):
        assert has_one.wait(timeout=30)
    return samples[0]


def test_one_machine_has_mlflows_own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    # Both nodes are this machine, as in a cluster for tests.
    _replace_ray(monkeypatch, "127.0.0.1", "127.0.0.1")
    assert set(_one_sample(monkeypatch)) == {f"system/{name}" for name in NAMES}


@pytest.mark.parametrize("num_machines", [12, 100])
def test_the_number_of_metrics_and_calls_does_not_grow_with_the_cluster(
    num_machines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced = _replace_ray(monkeypatch, *(f"10.0.0.{number}" for number in range(num_machines)))
    with working_on(lambda: _nodes(3, 2, 5, 3, 4)):
        sample = _one_sample(monkeypatch)
    name = "cpu_utilization_percentage"
    assert sample == {
        f"system/{name}": 30,  # the first that is named, not the driver's
        f"system/others/{name}_mean": pytest.approx((20 + 50 + 40) / 3),
        f"system/others/{name}_min": 20,
        f"system/others/{name}_max": 50,
    }
    assert sorted(replaced.asked) == [2, 3, 4, 5]


def test_the_drivers_machine_counts_where_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced = _replace_ray(monkeypatch, "10.0.0.1", "10.0.0.2")
    with working_on(lambda: _nodes(0)), working_on(lambda: _nodes(1)):
        assert set(_one_sample(monkeypatch)) > {f"system/{name}" for name in NAMES}
    assert replaced.asked == [1]


def test_machines_that_go_or_do_not_answer_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "_SECONDS_TO_ANSWER", 0.05)
    replaced = _replace_ray(monkeypatch, *(f"10.0.0.{number}" for number in range(12)))

    def unknown() -> list[str]:
        raise RayStateApiException("the dashboard is busy")

    with working_on(unknown), working_on(lambda: [*_nodes(_LOST, _SILENT, 1, 2), "long gone"]):
        sample = _one_sample(monkeypatch)
    name = "cpu_utilization_percentage"
    assert sample == {f"system/others/{name}_{one}": value for one, value in (("mean", 15), ("min", 10), ("max", 20))}
    assert replaced.cancelled == [_SILENT]


def test_an_error_costs_one_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "_SECONDS_BETWEEN", 0.01)
    _replace_ray(monkeypatch, "10.0.0.0", "10.0.0.1")
    errors: list[Exception] = [ValueError("the dashboard has no address"), ConnectionError("the GCS is away")]

    def nodes() -> list[str]:
        if errors:
            raise errors.pop()
        return _nodes(1)

    with working_on(nodes):
        assert _one_sample(monkeypatch) == {"system/cpu_utilization_percentage": 10.0}


def test_nothing_is_told_once_the_watch_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "_SECONDS_TO_FIRST", 0.0)
    is_read, may_go_on = threading.Event(), threading.Event()

    def slow(seconds: float | None) -> dict[str, float]:
        is_read.set()
        assert may_go_on.wait(timeout=30)
        return {"cpu_utilization_percentage": 1.0}

    monkeypatch.setattr(machines, "reading", slow)
    samples: list[Mapping[str, float]] = []
    watch = MachineWatch(samples.append)
    watch.__enter__()
    assert is_read.wait(timeout=30)
    ending = threading.Thread(target=watch.__exit__, args=(None, None, None))
    ending.start()
    assert watch._stop.wait(timeout=30)
    may_go_on.set()
    ending.join(timeout=30)
    assert samples == []
